# %% [markdown]
# # Lab 4: when compiling pays
#
# Question [4.1](../labs/lab4_compile.html): the time of a call, eager and compiled, and what the
# first call costs.

# %%
from templates.notebooks._read import plt, read

# %%
SHOWN = ("warm, in turn", "a batch of one", "BERT, a batch of one")
rows = [row for row in read("labs/figures/lab4_compile/corrections.csv") if row["timed"] in SHOWN]
names = [f"{row['network']}: {row['timed']}" for row in rows]
for name, row in zip(names, rows):
    print(f"{name}: {row['speed-up']:.2f} × after the first call")

# %% [markdown]
# ## The figure
#
# The time of a call with its interval, eager beside compiled.

# %%
figure, axes = plt.subplots(figsize=(6.4, 2.6))
looks = ((-0.15, "eager", "eager", "#5d6b85"), (0.15, "a call", "compiled", "#0072b2"))
for shift, column, label, color in looks:
    for at, row in enumerate(rows):
        axes.plot([row[f"{column} low"], row[f"{column} high"]], [at + shift] * 2, color=color)
        axes.plot(row[column], at + shift, "o", color=color, label="" if at else label)
axes.set_yticks(range(len(rows)), names)
axes.set(title="A call, eager and compiled", xlabel="ms")
axes.invert_yaxis()
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Vary it
#
# The first call compiles. `CALLS` is how often you call the model: what do all calls together
# take, against as many eager ones? Below one, compiling pays.

# %%
CALLS = 2000


def ratio(row, calls):
    """The time of this many compiled calls, the first included, over that of eager ones."""
    compiled = row["first call (s)"] + (calls - 1) * row["a call"] / 1e3
    return compiled / (calls * row["eager"] / 1e3)


figure, axes = plt.subplots(figsize=(6.4, 3.2))
counts = [10**power for power in (2, 2.5, 3, 3.5, 4, 4.5, 5)]
for name, row, color in zip(names, rows, ("#0072b2", "#d55e00", "#00795a", "#aa4a8d")):
    print(f"{name}: {ratio(row, CALLS):.2f} of the eager time for {CALLS} calls")
    axes.plot(counts, [ratio(row, calls) for calls in counts], color=color, label=name)
axes.axhline(1, color="black", linewidth=0.8)
axes.axvline(CALLS, color="black", linewidth=0.8, linestyle="--")
axes.set(xscale="log", yscale="log", xlabel="calls", ylabel="compiled / eager")
axes.set_xticks(counts[::2], [f"{calls:,}" for calls in counts[::2]])
axes.set_yticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"])
axes.minorticks_off()
axes.set_title("Total time, the first call included")
axes.legend(frameon=False)
plt.show()
