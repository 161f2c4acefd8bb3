"""NumPy, pandas, SciPy and matplotlib as analyses use them."""

import io
import os
import warnings

warnings.simplefilter("error", UserWarning)  # a glyph that no font has is one

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scipy.optimize
import scipy.sparse.linalg
import scipy.stats
from matplotlib import font_manager

rng = np.random.default_rng(1)
a = rng.standard_normal((400, 400))
assert np.allclose(a @ np.linalg.inv(a), np.eye(400), atol=1e-6)
np.linalg.svd(a)
np.linalg.eigh(a + a.T)
assert np.allclose(np.fft.ifft(np.fft.fft(a[0])), a[0])
np.save("a.npy", a)
assert (np.load("a.npy", mmap_mode="r") == a).all()
m = np.memmap("a.map", dtype="f8", mode="w+", shape=(1000,))
m[:] = 1
m.flush()
assert scipy.optimize.minimize(lambda x: (x - 3) ** 2, 0).success
assert scipy.stats.ttest_ind(a[0], a[1]).pvalue > 0
scipy.sparse.linalg.eigsh(scipy.sparse.eye(100).tocsr(), k=3)

df = pd.DataFrame({
    "day": pd.date_range("2024-03-01", periods=1000, freq="h", tz="Europe/Berlin"),
    "city": rng.choice(["Zürich", "東京", "서울", "北京"], 1000),
    "value": rng.standard_normal(1000),
})
df.to_csv("t.csv", index=False)
back = pd.read_csv("t.csv", parse_dates=["day"])
assert len(back) == 1000 and set(back.city) == set(df.city)
pivot = df.assign(hour=df.day.dt.hour).pivot_table(index="hour", columns="city", values="value", aggfunc="mean")
assert pivot.shape[1] == 4
assert len(df.set_index("day").value.resample("D").mean()) >= 41
assert df.merge(df.groupby("city").value.mean().rename("mean"), on="city").shape == (1000, 4)
df.to_pickle("t.pkl")
df.to_json("t.json")
df.to_html("t.html")
df.rolling(5, on="day").value.mean()
df.describe().to_string()
assert pd.read_json(io.StringIO('[{"a":1}]')).a[0] == 1
assert df.day.dt.tz_convert("Asia/Tokyo").dt.hour[0] == 8

assert matplotlib.get_backend().lower() == "agg"
cache = matplotlib.get_cachedir()
assert os.access(cache, os.W_OK) and cache.startswith(os.environ["HOME"]), cache
assert font_manager.findfont("DejaVu Sans", fallback_to_default=False)
fig, axes = plt.subplots(2, 2, figsize=(8, 6))
axes[0, 0].plot(df.value.cumsum())
axes[0, 0].set_title("Größe naïve Ελληνικά Кириллица")
axes[0, 1].hist(df.value)
axes[0, 1].set_title("数据分析 図表 日本語 かな カナ 한국어 繁體")
axes[1, 0].imshow(a)
axes[1, 0].set_xlabel(r"$\int_0^\infty e^{-x^2}\,dx = \frac{\sqrt{\pi}}{2}$")
axes[1, 1].bar(pivot.columns, pivot.mean())
fig.tight_layout()
for kind in ("png", "svg", "pdf", "jpg"):
    fig.savefig("/outputs/plot." + kind)
    assert os.path.getsize("/outputs/plot." + kind) > 5000, kind
df.value.plot()
plt.savefig("p.png", dpi=200)
for style in ("seaborn-v0_8", "seaborn-v0_8-whitegrid", "ggplot", "classic", "fivethirtyeight", "default"):
    with plt.style.context(style):
        plt.figure(figsize=(1, 1), dpi=50)
        plt.title("表")
        plt.savefig("styled.png")
        plt.close()
plt.rcdefaults()
plt.figure()
plt.title("表")
plt.savefig("p.png")
plt.close("all")
plt.rcParams["font.family"] = "serif"
plt.figure()
plt.text(0, 0, "serif")
plt.savefig(io.BytesIO())
print("ok")
