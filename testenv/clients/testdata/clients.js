// Node's own client, which has authorities of its own and adds those that a variable names.
(async () => {
  for (const url of ["https://api.example/", "http://api.example/", "https://key.example/"]) {
    const answer = await fetch(url);
    console.log("node", url, await answer.text());
  }
  const began = Date.now();
  try {
    await fetch("https://other.example/");
    console.log("node reached it");
  } catch (e) {
    console.log("node refused", Date.now() - began < 2000 ? "at once" : "late", e.cause.code);
  }
})();
