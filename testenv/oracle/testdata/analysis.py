# pandas and NumPy: some hundred modules and libraries, and files written and read again.
import numpy as np
import pandas as pd

t = pd.DataFrame({"n": np.arange(5000), "x": np.random.default_rng(1).normal(size=5000)}, index=pd.date_range("2020-01-01", periods=5000, freq="h"))
t.to_csv("t.csv")
t.to_json("t.json")
t.to_pickle("t.pickle.gz")
np.save("x.npy", t.x.values)
u = pd.read_csv("t.csv", index_col=0, parse_dates=True)
assert len(u.resample("D").mean().rolling(7).sum().dropna()) > 100
assert pd.read_json("t.json").n.sum() == t.n.sum() == pd.read_pickle("t.pickle.gz").n.sum()
assert np.load("x.npy", mmap_mode="r").shape == (5000,)
for f in lambda: pd.read_csv("none.csv"), lambda: pd.read_csv("http://192.0.2.1/t.csv"):
    try:
        f()
    except OSError:
        continue
    raise SystemExit("it can be read")
print("ok")
