#!/bin/sh
# Writes the results page on UCI Adult: every line of its table is one experiment file of deploy/experiments.
#
#   deploy/guide/adult.sh DATA_DIR > deploy/guide/src/results/adult.md
#
# Needs dp-pvi-sim in PATH and the folder adult/ with adult.data.gz and adult.test.gz below DATA_DIR. All rows take
# some minutes on two cores; the seeds are in the experiment files.
set -eu

data=$1
experiments=$(cd "$(dirname "$0")/../experiments" && pwd)

cat <<END
# UCI Adult

*Made on $(date -u +%Y-%m-%d) by \`deploy/guide/adult.sh DATA_DIR\`, version $(dp-pvi-sim --version | cut -d' ' -f2).*

Income above 50,000 from 14 columns; 48,842 records, of which a fifth is held out, with another split for every seed. ε = 1 and δ = 1e-5
under replace-one, unless a row says otherwise. "One sum" is the noise that an aggregated sum has; "10 sites" trust nobody. Log-likelihood is per
held-out record, and higher is better; the optimum without protection reaches −0.3305. ± is the standard error over the seeds, splits included.

| method | setting | held-out log-likelihood | accuracy | processor time of a run |
|---|---|---|---|---|
END

# row NAME SETTING FILE [--set KEY=VALUE…]
row() {
    name=$1 setting=$2 file=$3
    shift 3
    printf 'adult: %s, %s\n' "$name" "$setting" >&2
    dp-pvi-sim run "$experiments/$file.toml" --data "$data" "$@" |
        sed -nE "s/^[a-z-]+: log-likelihood (-?[0-9.]+ ± [0-9.]+), accuracy ([0-9.]+ ± [0-9.]+), .*, ([0-9.]+ s) of processor time\$/| $name | $setting | \1 | \2 | \3 |/p" |
        sed 's/| -0/| −0/'
}

ten="--set clients.number=10 --set phases.min_sites=10"
full="--set task.model.approximation=full-covariance"
# shellcheck disable=SC2086 # options are words
{
    row "\`natural-gradient\`, full covariance" "one sum" adult-natural-gradient $full
    row "\`natural-gradient\`, full covariance" "one sum, add-remove" adult-natural-gradient $full --set task.privacy.adjacency=add-remove
    row "\`natural-gradient\`, full covariance" "10 sites" adult-natural-gradient $full $ten
    row "\`natural-gradient\`, mean field" "one sum" adult-natural-gradient
    row "\`natural-gradient\`, mean field" "10 sites" adult-natural-gradient $ten
    row "\`natural-gradient\`, full covariance" "10 sites and a summer" adult-aggregated $full
    row "\`dp-optimisation\`" "10 sites" adult-dp-optimisation
    row "\`vips\` (Pólya–Gamma)" "10 sites, aggregated" adult-polya-gamma
    row "\`virtual-clients\`" "10 sites, aggregated" adult-virtual-clients
    row "\`local-averaging\`" "10 sites, aggregated" adult-local-averaging
}

cat <<'END'

Which settings a row has is in its experiment file: `adult-natural-gradient.toml` and so on, beside `adult.schema.toml`. The seeds fix splits, noise and
coins, so that the same version prints the same figures.
END
