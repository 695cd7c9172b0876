# %% [markdown]
# # Lab 1: how many bits are enough
#
# Question [1.1](../labs/lab1_quantization.html): test accuracy at each fixed-point width, right
# after quantization (PTQ) and after training on (QAT).

# %%
from templates.notebooks._read import plt, read

# %%
rows = read("labs/figures/lab1_quantization/accuracy.csv")
every = [row["width"] for row in rows]
curves = ["PTQ", "QAT", "PTQ, one fraction width"]


def measured(name):
    """The rows that have a value of this curve."""
    return [row for row in rows if row[name] != ""]


for name in curves:
    print(name, *(f"{row['width']:.0f} bits {row[name]:.1%}" for row in measured(name)), sep="  ")

# %% [markdown]
# ## The figure
#
# Bars are intervals over models; a point without one is a single model.

# %%
figure, axes = plt.subplots(figsize=(6.4, 3.4))
for name, color, marker in zip(curves, ("#0072b2", "#d55e00", "#00795a"), "os^"):
    some = measured(name)
    widths = [row["width"] for row in some]
    for row in some:
        if row.get(f"{name} low", "") != "":
            axes.vlines(row["width"], row[f"{name} low"], row[f"{name} high"], color, alpha=0.5)
    axes.plot(widths, [row[name] for row in some], marker, linestyle="-", color=color, label=name)
axes.set_xscale("log", base=2)
axes.set_xticks(every, [f"{width:.0f}" for width in every], minor=False)
axes.set(title="Test accuracy by fixed-point width", xlabel="bits", ylabel="test accuracy")
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Vary it
#
# `GIVE_AWAY` is how many points of accuracy you would give for fewer bits. The line lies that far
# below the widest format; what stands above it is narrow enough for you. Try a tenth of a point,
# and five.

# %%
GIVE_AWAY = 2.0  # points

figure, axes = plt.subplots(figsize=(6.4, 3.0))
needed = rows[-1]["PTQ"] - GIVE_AWAY / 100
for name, color, marker in zip(curves, ("#0072b2", "#d55e00", "#00795a"), "os^"):
    some = measured(name)
    widths = [row["width"] for row in some]
    above = [row["width"] for row in some if row[name] >= needed]
    print(f"{name}: above the line at {', '.join(f'{width:.0f}' for width in above) or 'no'} bits")
    axes.plot(widths, [row[name] for row in some], marker, linestyle="-", color=color, label=name)
axes.axhline(needed, color="black", linewidth=0.8, linestyle="--")
axes.set_xscale("log", base=2)
axes.set_xticks(every, [f"{width:.0f}" for width in every], minor=False)
axes.set(title=f"{GIVE_AWAY:g} points below the widest format", xlabel="bits")
axes.legend(frameon=False)
plt.show()
