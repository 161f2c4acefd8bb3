"""A short analysis."""

import numpy as np
import pandas as pd

rng = np.random.default_rng()
df = pd.DataFrame({"day": pd.date_range("2024-01-01", periods=500), "city": rng.choice(list("abc"), 500), "value": rng.random(500)})
df.to_csv("data.csv", index=False)
back = pd.read_csv("data.csv", parse_dates=["day"])
monthly = back.groupby([back.day.dt.month, "city"]).value.agg(["mean", "max", "count"])
assert monthly["count"].sum() == 500
monthly.to_json("/outputs/monthly.json")
a = rng.random((200, 200))
assert np.isfinite(a @ a).all()
print(monthly.head())
print("ok")
