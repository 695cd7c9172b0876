# %% [markdown]
# # Lab 2: how far a search has come after so many trials
#
# Question [2.1](../labs/lab2_samplers.html): the best accuracy so far, by trial, for each
# sampler.

# %%
from templates.notebooks._read import plt, read

# %%
rows = read("labs/figures/lab2_samplers/curves.csv")
trials = [row["trial"] for row in rows]
samplers = ["Random", "Grid", "TPE"]
print(f"{len(rows)} trials, samplers: {', '.join(samplers)}")

# %% [markdown]
# ## The figure
#
# Means over the studies, with bands; Grid has one study.

# %%
figure, axes = plt.subplots(figsize=(6.4, 3.4))
for name, color in zip(samplers, ("#0072b2", "#d55e00", "#00795a")):
    if f"{name} low" in rows[0]:  # several studies
        low, high = ([row[f"{name} {end}"] for row in rows] for end in ("low", "high"))
        axes.fill_between(trials, low, high, color=color, alpha=0.15, linewidth=0)
    axes.plot(trials, [row[name] for row in rows], color=color, label=name)
axes.set(title="Best accuracy so far", xlabel="trial", ylabel="validation accuracy")
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Vary it
#
# `BUDGET` is how many trials you can pay for. What does each sampler hold by then, and how many
# more trials would the others have needed for as much?

# %%
BUDGET = 10  # trials

reached = {name: rows[BUDGET - 1][name] for name in samplers}
best = max(reached.values())
for name in samplers:
    later = next((row["trial"] for row in rows if row[name] >= best), None)
    when = f"holds as much after trial {later:.0f}" if later else "never holds as much"
    print(f"{name:<7} {reached[name]:.1%} after {BUDGET} trials; {when}")
figure, axes = plt.subplots(figsize=(6.4, 2.2))
axes.barh(list(reached), list(reached.values()), color="#0072b2")
axes.set(title=f"After {BUDGET} trials", xlabel="best validation accuracy so far")
axes.set_xlim(min(reached.values()) - 0.02, best + 0.01)
plt.show()
