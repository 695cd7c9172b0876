# %% [markdown]
# # Lab 0: what an adapter reaches
#
# Question [0.2](../labs/lab0_lora.html): test accuracy after a training of the same length, by
# what was trained.
#
# The data are those of the page's figure. [Download this notebook](lab0.ipynb) into the folder
# `notebooks` of the site or of `docs`, or set `LOGBOOK` to the address of a published logbook; it
# needs Python and matplotlib. What is chosen here by looking at test values is no finding.

# %%
import csv
import io
from pathlib import Path
from urllib.request import urlopen

import matplotlib.pyplot as plt

LOGBOOK = ".."  # its folder, seen from this notebook; or the address of a published logbook


def number(text):
    try:
        return float(text)
    except ValueError:
        return text


def read(path):
    """The rows of a CSV of the logbook, its numbers as numbers."""
    where = f"{LOGBOOK}/{path}"
    raw = urlopen(where).read() if "://" in where else Path(where).read_bytes()
    rows = csv.DictReader(io.StringIO(raw.decode()))
    return [{column: number(cell) for column, cell in row.items()} for row in rows]


# %%
rows = read("labs/figures/lab0_lora/accuracy.csv")
for row in rows:
    print(f"{row['trained']:<22} {row['test accuracy']:.1%}")

# %% [markdown]
# ## The figure
#
# Points with their intervals, as on the page.

# %%
figure, axes = plt.subplots(figsize=(6.4, 2.8))
for row in rows:
    low, high = row["test accuracy low"], row["test accuracy high"]
    axes.plot([low, high], [row["trained"]] * 2, color="#5d6b85")
    axes.plot(row["test accuracy"], row["trained"], "o", color="#0072b2")
axes.set(title="Test accuracy by what was trained", xlabel="test accuracy")
axes.invert_yaxis()
plt.show()

# %% [markdown]
# ## Vary it
#
# Hold every model against another one: change `AGAINST` to a name of the list above and run the
# cell again. The intervals are those of each model alone; the page tests differences pair by
# pair, which is sharper.

# %%
AGAINST = "full fine-tuning"

level = next(row["test accuracy"] for row in rows if row["trained"] == AGAINST)
others = [row for row in rows if row["trained"] != AGAINST]
figure, axes = plt.subplots(figsize=(6.4, 2.6))
points = [100 * (row["test accuracy"] - level) for row in others]
axes.barh([row["trained"] for row in others], points, color="#0072b2")
axes.axvline(0, color="black", linewidth=0.8)
axes.set(title=f"Points of accuracy against {AGAINST}", xlabel="points")
axes.invert_yaxis()
plt.show()
