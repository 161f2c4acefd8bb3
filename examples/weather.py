"""Four years of weather in Seattle: a summary by year and by month, and a plot.

Reads /inputs/seattle-weather.csv and writes /outputs/plot.png.
"""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd

weather = pd.read_csv("/inputs/seattle-weather.csv", parse_dates=["date"])
print(f"{len(weather):,} days, {weather['date'].min():%Y-%m-%d} to {weather['date'].max():%Y-%m-%d}")


def summary(key):
    """One row for each value of key."""
    groups = weather.groupby(key)
    return pd.DataFrame(
        {
            "days": groups.size(),
            "rain_mm": groups["precipitation"].sum(),
            "wet_days": groups["precipitation"].apply(lambda mm: (mm > 0).sum()),
            "mean_max_c": groups["temp_max"].mean(),
            "mean_min_c": groups["temp_min"].mean(),
        }
    ).round(1)


by_year = summary(weather["date"].dt.year.rename("year"))
by_month = summary(weather["date"].dt.month.rename("month"))
print("\nBy year\n" + by_year.to_string())
print("\nBy month, all years together\n" + by_month.to_string())

monthly = weather.set_index("date").groupby(pd.Grouper(freq="MS"))
rain = monthly["precipitation"].sum()
low, high = monthly["temp_min"].mean(), monthly["temp_max"].mean()

figure, (top, bottom) = plt.subplots(2, 1, figsize=(10, 6), sharex=True)
top.fill_between(rain.index, low, high, color="tab:orange", alpha=0.4, label="mean daily range")
top.set_ylabel("°C")
top.legend(loc="upper left")
bottom.bar(rain.index, rain, width=20, color="tab:blue")
bottom.set_ylabel("rain, mm a month")
figure.suptitle("Seattle, 2012 to 2015")
figure.tight_layout()
figure.savefig("/outputs/plot.png", dpi=100)
print("\nwrote /outputs/plot.png")
