# %% [markdown]
# # Lab 3: accuracy for each bit
#
# Question [3.2](../labs/lab3_formats.html): what each number format costs in bits and keeps in
# accuracy when all Linear layers take it.

# %%
from templates.notebooks._read import plt, read

# %%
rows = read("labs/figures/lab3_formats/accuracy.csv")
families = list(dict.fromkeys(row["formats"] for row in rows))
print(f"{len(rows)} formats of {len(families)} kinds: {'; '.join(map(str, families))}")

# %% [markdown]
# ## The figure
#
# One point a format.

# %%
COLORS = ("#0072b2", "#d55e00", "#00795a", "#aa4a8d", "#946a00", "#6155c9", "#6b3410", "#5d6b85")
figure, axes = plt.subplots(figsize=(6.4, 4.2))
for family, color in zip(families, COLORS):
    of_it = [row for row in rows if row["formats"] == family]
    x, y = [row["bits"] for row in of_it], [row["test accuracy"] for row in of_it]
    axes.plot(x, y, "o", color=color, markersize=4, label=str(family))
axes.set_xscale("log", base=2)
axes.set_xticks([1, 2, 4, 8, 16, 32], ["1", "2", "4", "8", "16", "32"], minor=False)
axes.set(title="Accuracy by bits a value", xlabel="bits", ylabel="test accuracy")
axes.legend(frameon=False, fontsize=11)
plt.show()

# %% [markdown]
# ## Vary it
#
# `BITS` is what you can afford for a value. Of the formats within it, validation chooses one; its
# test accuracy is then what it is.

# %%
BITS = 5

within = sorted((row for row in rows if row["bits"] <= BITS), key=lambda row: -row["validation"])
for row in within[:5]:
    print(
        f"{row['format']:<28} validation {row['validation']:.1%}, test {row['test accuracy']:.1%}"
    )
figure, axes = plt.subplots(figsize=(6.4, 3.0))
shown = within[:8][::-1]
axes.barh([row["format"] for row in shown], [row["validation"] for row in shown], color="#0072b2")
axes.set(title=f"The eight best of at most {BITS} bits", xlabel="validation accuracy")
plt.show()
