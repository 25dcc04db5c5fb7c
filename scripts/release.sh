#!/usr/bin/env bash
# Makes a release of the version in CMakeLists.txt, and uploads nothing: builds the wheel, tests it in a new environment
# that has only torch from pip's index, and prints what to upload, with checksums, and the commands for that.
#
#   scripts/release.sh             refuses uncommitted changes, a tag that exists, and a CHANGELOG.md without this version
#   scripts/release.sh --rehearse  does the same without these three checks
#
# Needs what scripts/package.sh needs, the network, 8 GB in the temporary folder, and about half an hour.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
refuse() { printf 'release.sh: %s\n' "$*" >&2; exit 1; }

rehearse=''
case ${1:-} in
  --rehearse) rehearse=1 ;;
  '') ;;
  *) refuse "unknown option $1; usage: release.sh [--rehearse]" ;;
esac
version=$(sed -n 's/^project(titan-train VERSION \([0-9.]*\) .*/\1/p' CMakeLists.txt)
[[ -n $version ]] || refuse "CMakeLists.txt has no line 'project(titan-train VERSION X.Y.Z ...'"
heading="## $version ("
if [[ -z $rehearse ]]; then
  grep -qE "^## ${version//./\\.} \([0-9]{4}-[0-9]{2}-[0-9]{2}\)$" CHANGELOG.md ||
    refuse "CHANGELOG.md has no heading '## $version (YYYY-MM-DD)'; rename 'Unreleased', or change the version in CMakeLists.txt"
  [[ -z $(git status --porcelain) ]] || refuse "there are uncommitted changes; the wheel must be that of a commit"
  if git rev-parse -q --verify "refs/tags/v$version" >/dev/null; then
    refuse "the tag v$version exists; a released version does not change: raise the one in CMakeLists.txt"
  fi
else
  heading='## '
fi

scripts/package.sh
wheel=$(realpath build/wheel/dist/titan_train-"$version"-*.whl)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install -q --disable-pip-version-check "$wheel"
export PATH=$work/env/bin:$PATH
mkdir "$work/journey"
WITHOUT_MPI=$(command -v mpirun >/dev/null || echo 1) bash tests/integration/project/journey.sh "$work/journey"
.venv/bin/python tests/integration/run.py --program "$work/env/bin/titan-train" --work "$work/cases" --quick

# The notes are this version's part of the changelog: from its heading to the next one.
notes=build/wheel/dist/NOTES.md
awk -v heading="$heading" '/^## / { if (inside) exit; inside = index($0, heading) == 1; next } inside' CHANGELOG.md >"$notes"
(cd build/wheel/dist && sha256sum "$(basename "$wheel")" >SHA256SUMS)
cat <<END

titan-train $version ($(git describe --always --dirty --exclude='*')) is ready. In build/wheel/dist:
  $(cat build/wheel/dist/SHA256SUMS)
  SHA256SUMS
  NOTES.md    the changes since the last version, for the page of the release

To publish it:
  git tag -a v$version -m "titan-train $version" && git push origin v$version
  twine upload $wheel
END
