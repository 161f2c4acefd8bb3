# git: commits, merges, hooks, packs, clones by path and by a server of its own.
set -e
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
git config --global init.defaultBranch main; git config --global pack.threads 2
git init -q r && cd r
for i in $(seq 12); do seq $i >f$i; git add f$i; git commit -qm "commit $i"; done
printf '#!/bin/sh\necho "$0" >>../hooks\n' >.git/hooks/post-commit && chmod +x .git/hooks/post-commit
git checkout -qb side HEAD~4 && echo side >side && git add side && git commit -qm side
git checkout -q main && git merge -q -m merged side && git rebase -q side >/dev/null 2>&1 || git rebase --abort
git log --stat --graph >/dev/null && git blame f12 >/dev/null && git diff HEAD~3 >../d && git grep -n 7 >/dev/null
git stash -q 2>/dev/null || true; echo x >>f1; git stash -q; git stash pop -q; git checkout -q -- f1
git repack -adq && git gc -q && git fsck >/dev/null 2>&1 && git bundle create -q ../b.bundle main
git tag v1 && git archive v1 | tar -t >/dev/null && git worktree add -q ../w side
git bisect start -q HEAD HEAD~6 >/dev/null && git bisect run test ! -e f11 >/dev/null 2>&1 || true; git bisect reset >/dev/null 2>&1
cd .. && cat hooks && git clone -q r c && git clone -q --bare --no-local r bare.git && git -C c pull -q
(cd c && echo y >y && git add y && git commit -qm y && git push -q ../bare.git HEAD:new)
git daemon --listen=127.0.0.1 --port=9418 --base-path=/scratch --export-all --reuseaddr --pid-file=pid &
for i in 1 2 3 4 5 6 7 8 9; do git clone -q git://127.0.0.1/bare.git net 2>/dev/null && break; sleep 0.3; done
[ -d net/.git ] && kill "$(cat pid)"; wait
git clone -q none x 2>/dev/null || git clone -q git://192.0.2.1/x 2>/dev/null || true
git ls-remote http://192.0.2.1/x 2>/dev/null || true
echo ok
