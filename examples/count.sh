# How many days of each kind of weather: run it with --input examples/data/seattle-weather.csv
set -eu
tail -n +2 /inputs/seattle-weather.csv | cut -d, -f6 | sort | uniq -c | sort -rn | tee /outputs/counts.txt
