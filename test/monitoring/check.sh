#!/bin/bash
# Tries Bookend's metrics with the programs that read them: Prometheus and node_exporter, from Debian's packages, on this
# machine's loopback alone. Hooks on fake GPUs write the textfile, node_exporter serves it, Prometheus scrapes it and is
# asked; promtool checks file and rules; every panel of the dashboard is asked of 100 simulated nodes.
#
# usage: test/monitoring/check.sh [PROGRAMS]    as root, in the project's root; PROGRAMS: the built ones' folder, or bin.
# test/install-prometheus.sh installs what it needs.
# shellcheck disable=SC2015,SC2016,SC2034,SC2154 # fail never stands for an else; "printf -v" sets what seems unset
set -euo pipefail

programs=$(realpath "${1:-bin}")
rules=deploy/prometheus/rules.yml tests=test/monitoring/rules_test.yml dashboard=deploy/grafana/bookend.json
dir=$(mktemp -d /run/bookend-monitoring.XXXXXX) # only root can write there, as the hooks demand
chmod 0755 "$dir"
failed=0 asked=0
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -r "$dir"' EXIT
trap 'exit 1' HUP INT TERM

fail() {
	printf 'FAILED  %s\n' "$*"
	failed=$((failed + 1))
}
# ok says that all is well since the last "ok".
ok() {
	[ "$failed" -gt "${before:-0}" ] || printf 'ok      %s\n' "$1"
	before=$failed
}
# eventually tries a command for a minute.
eventually() {
	local end=$((SECONDS + 60))
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.2
	done
}

# ---- The rules are well formed, and each alert fires when it must and else is silent.
promtool check rules --lint=all --lint-fatal "$rules" >/dev/null || fail "promtool check rules"
promtool test rules "$tests" >/dev/null || fail "promtool test rules"
ok "the rules are well formed, and each alert fires when it must and else is silent"

# ---- A mistake planted in any alert is noticed: one that never fires, and one that always does.
sed "s|../../$rules|$dir/planted.yml|" "$tests" >"$dir/planted_test.yml"
alerts=$(sed -n 's/^      - alert: //p' "$rules")
[ "$(wc -w <<<"$alerts")" -ge 10 ] || fail "alerts in $rules: $alerts"
for alert in $alerts; do
	for expr in 'vector(1) > 2' 'vector(1)'; do
		awk -v alert="$alert" -v expr="$expr" '
			/^      - alert: / { here = $3 == alert }
			here && /^        expr: / { print "        expr: " expr; old = 1; next }
			/^        (for|labels): / { old = 0; here = 0 }
			!old' "$rules" >"$dir/planted.yml"
		promtool check rules "$dir/planted.yml" >/dev/null || fail "$alert with $expr is no rule"
		! promtool test rules "$dir/planted_test.yml" >/dev/null 2>&1 || fail "$alert with the expression $expr passes the tests"
	done
done
ok "a mistake planted in any alert is noticed"

# ---- Hooks on fake GPUs are scraped through node_exporter, figure for figure.
mkdir "$dir/libexec" "$dir/textfiles" "$dir/slurm"
install -m 0755 "$programs"/bookend-{prolog,epilog,healthcheck,gpu} "$dir/libexec"
export textfile=$dir/textfiles/bookend.prom world=$dir/world
go run ./test/monitoring "$world"
dev=$(echo "$world"/dev-*)
coproc keeper { "$world/fakekeeper"; } # it ends with its input
printf 'ClusterName=lab\nGresTypes=gpu\nNodeName=n1 Gres=gpu:2\n' >"$dir/slurm/slurm.conf"
printf 'Name=gpu File=/dev/nvidia[0-1]\n' >"$dir/slurm/gres.conf"
{
	printf '#!/bin/sh\ncat >&2 <<END\n'
	printf 'slurmd: Gres Name=gpu Type=(null) Count=1 Index=%d ID=7696487 File=/dev/nvidia%d Links=(null) Flags=HAS_FILE\n' 0 0 1 1
	echo END
} >"$dir/slurm/slurmd"
chmod 0755 "$dir/slurm/slurmd"
# A busy machine's disk, which is not what is tried here, may take longer than shipped.
cat >"$dir/bookend.yaml" <<END
version: 1
backend: $dir/libexec/bookend-gpu
paths: {run: $dir/run, var: $dir/var, log: $dir/log, sys: $world/sys, dev: $dev}
nvidia: {nvml_library: $world/libnvidia-ml.so.1, cuda_library: $world/libcuda.so.1, driver_proc: $world/proc-driver/nvidia}
metrics: {textfile: $textfile}
slurm: {shards: no, gres_conf: $dir/slurm/gres.conf, slurmd: $dir/slurm/slurmd}
deadlines: {prolog: {total: 25s, records: 15s}, epilog: {total: 40s, records: 15s}, health_check: {records: 15s}}
settle: {epilog: {max: 3s, stable: 500ms}}
END
# hook PROGRAM [CONTEXT JOB] runs a program as slurmd does for a job that has GPU 0 alone.
hook() {
	local job=(BOOKEND_CONFIG="$dir/bookend.yaml" SLURMD_NODENAME=n1) said
	[ $# = 1 ] || job+=(SLURM_SCRIPT_CONTEXT="$2" SLURM_JOB_ID="$3" SLURM_JOB_UID=65534 SLURM_JOB_GID=65534
		SLURM_JOB_USER=nobody SLURM_JOB_PARTITION=main SLURM_JOB_NODELIST=n1 SLURM_JOB_GPUS=0
		SLURM_JOB_START_TIME=$((1700000000 + $3)))
	said=$(env -i "${job[@]}" "$dir/libexec/$1" 2>&1) && [ -z "$said" ] || fail "$*: $said"
	written
}
# written waits for what hooks left to do at the disk.
written() { while grep -qsz -e '--dis[k]' /proc/[0-9]*/cmdline; do sleep 0.01; done; }
# An admin wants the other GPU kept from jobs; there is no Slurm that could do it.
mkdir -m 0755 "$dir/var"
printf '[{"gpu": 1, "uuid": "GPU-1", "since": "2026-11-30T10:00:00Z"}]' >"$dir/var/quarantines-n1.json"
# A clean job, one that leaves a process on its GPU, and a health check. In observe mode nothing drains.
hook bookend-prolog prolog_slurmd 7
hook bookend-epilog epilog_slurmd 7
hook bookend-prolog prolog_slurmd 8
setpriv --reuid 65534 --regid 65534 --clear-groups env CUDA_VISIBLE_DEVICES=0 "$world/fakecuda" alloc --mib 2000 \
	>"$dir/left" &
left=$!
eventually test -s "$dir/left" || fail "no process is on the GPU"
sleep 3 # the recorder looks once a second
hook bookend-epilog epilog_slurmd 8
hook bookend-healthcheck
kill "$left"
said=$(promtool check metrics <"$textfile" 2>&1) && [ -z "$said" ] || fail "promtool check metrics: $said"

# serve NAME LOG PATH PROGRAM [ARGUMENT...] starts a program on a free port, waits until it answers, and sets NAME to its URL.
serve() {
	local name=$1 log=$2 path=$3 port
	shift 3
	port=$(free_port)
	"$@" --web.listen-address="127.0.0.1:$port" >"$log" 2>&1 &
	printf -v "$name" %s "http://127.0.0.1:$port"
	eventually curl -sf -o "$dir/ready" "http://127.0.0.1:$port$path" || { cat "$log"; fail "$1 does not answer"; exit 1; }
}
free_port() {
	local port
	for port in $(shuf -i 20000-30000 -n 50); do
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
	done
}
# run_prometheus NAME DATA [TARGET]
run_prometheus() {
	{
		printf 'global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: ["%s"]\n' "$PWD/$rules"
		[ $# -lt 3 ] || printf 'scrape_configs: [{job_name: node, static_configs: [{targets: ["%s"], labels: {cluster: alpha}}]}]\n' "$3"
	} >"$dir/$1.yml"
	promtool check config "$dir/$1.yml" >/dev/null
	serve "$1" "$dir/$1.log" /-/ready prometheus --config.file="$dir/$1.yml" --storage.tsdb.path="$2" \
		--storage.tsdb.retention.time=10y --web.console.templates= --web.console.libraries=
}
# query URL EXPRESSION [TIME] prints how many lines the answer has, and the first one's value.
query() {
	curl -sfG "$1/api/v1/query" --data-urlencode "query=$2" ${3:+-d time="$3"} |
		jq -r 'select(.status == "success" and .warnings == null) | "\(.data.result | length) \(.data.result[0].value[1])"'
}
# figure EXPRESSION LEAST MOST: the answer is one line with such a value.
figure() {
	asked=$((asked + 1))
	query "$prometheus" "$1" | awk -v least="$2" -v most="$3" '{ exit !($1 == 1 && $2 >= least && $2 <= most) }'
}

serve exporter "$dir/exporter.log" /metrics prometheus-node-exporter --collector.disable-defaults --collector.textfile \
	--collector.textfile.directory="$dir/textfiles"
run_prometheus prometheus "$dir/scraped" "${exporter#http://}"
eventually figure 'bookend_build_info' 1 1 || fail "nothing is scraped"
# Each line of the file, as Prometheus has it.
while read -r series value; do
	eventually figure "$series" "$value" "$value" || fail "Prometheus has $(query "$prometheus" "$series") of $series $value"
done < <(grep -v '^#' "$textfile")
[ "$asked" -ge 100 ] || fail "only $asked lines in the file"
# What the two jobs must have left in the figures.
mib=1048576
while read -r least most expr; do
	eventually figure "$expr" "$least" "$most" || fail "$expr is $(query "$prometheus" "$expr"), want $least to $most"
done <<END
2 2 sum(bookend_hook_runs_total{hook="epilog"})
2 2 bookend_hook_runs_total{hook="prolog",action="ignore"}
1 1 bookend_findings_total{hook="epilog",code="BKD-ORPHAN"}
$((2000 * mib)) $((3000 * mib)) bookend_gpu_leaked_bytes{gpu="0"}
0 0 bookend_gpu_leaked_bytes{gpu="1"}
0 0 bookend_gpu_quarantined{gpu="1"}
2 2 bookend_settle_seconds_count{hook="prolog"}
2 2 bookend_hook_duration_seconds_count{hook="epilog"}
2 2 bookend_hook_duration_seconds_bucket{hook="prolog",le="+Inf"}
0 0 bookend_last_run_own_errors{hook="health_check"}
1 1 bookend_mode_info{mode="observe"}
0 0 sum(bookend_own_errors_total)
0 600 time() - bookend_last_run_timestamp_seconds{hook="health_check"}
1 1 cluster:bookend_nodes:count{cluster="alpha"}
END
# Each family has one help and one type, and those of the documentation.
curl -sf "$prometheus/api/v1/metadata" |
	jq -r '.data | to_entries[] | select(.key | startswith("bookend_")) | "`\(.key)`|\(.value | length)|\(.value[0].type) | \(.value[0].help) |"' >"$dir/families"
[ "$(wc -l <"$dir/families")" -ge 15 ] || fail "Prometheus knows few families: $(cat "$dir/families")"
while IFS='|' read -r name meanings meaning; do
	[ "$meanings" = 1 ] && grep -F "| $name |" docs/metrics.md | grep -qF "| $meaning" || fail "docs/metrics.md does not say $name: $meaning"
done <"$dir/families"
# A file that is not well formed is left out and said, until a hook replaces it.
echo 'bookend_hook_runs_total{hook=' >"$textfile"
eventually figure 'node_textfile_scrape_error' 1 1 || fail "a malformed file is not said"
hook bookend-prolog prolog_slurmd 9
eventually figure 'node_textfile_scrape_error' 0 0 || fail "a hook does not replace a malformed file"
eventually figure 'sum(bookend_hook_runs_total{hook="prolog"})' 3 3 || fail "the third prolog is not counted"
# Whoever reads while hooks write gets a whole file.
(for job in $(seq 100 119); do hook bookend-prolog prolog_slurmd "$job"; done; exit "$failed") &
writer=$! reads=0
while kill -0 "$writer" 2>/dev/null; do
	curl -sf "$exporter/metrics" >"$dir/read"
	for part in 'node_textfile_scrape_error 0' 'bookend_build_info{' 'bookend_settle_seconds_count'; do
		grep -qF "$part" "$dir/read" || fail "read $reads is not whole: no $part"
	done
	reads=$((reads + 1))
done
wait "$writer" || fail "a hook while others read"
[ "$reads" -ge 20 ] || fail "only $reads reads while hooks wrote"
ok "hooks on fake GPUs are scraped through node_exporter, figure for figure"

# ---- Each panel of the dashboard has data of many nodes, and few lines: 13 steps of 5 minutes of 100 nodes, each of which
# has what the hooks wrote above, grows in its own way, and is clean, leaky or in trouble by its number.
step=300 end=$(($(date +%s) / step * step - 6 * 3600)) begin=$((end - 12 * step))
grep -v '^#' "$textfile" | awk -v begin="$begin" -v step="$step" '
	{ value[NR] = $NF; sub(/ [^ ]+$/, ""); name[NR] = $0 }
	END {
		split("h200 a100 debug", partition, " ")
		for (s = 0; s < 13; s++) for (n = 0; n < 100; n++) for (i = 1; i <= NR; i++) {
			at = begin + s * step; v = value[i]; series = name[i]
			target = sprintf("instance=\"gpu%04d:9100\",job=\"node\",cluster=\"%s\",partition=\"%s\"", n, n % 2 ? "beta" : "alpha",
				partition[n % 3 + 1])
			if (series ~ /_total|_count|_sum|_bucket/) v = v * (1 + s) * (1 + n % 7)
			if (series ~ /_total/ && v == 0 && (n + s) % 11 == 0) v = s
			if (series ~ /own_errors_total.*BKD-CONFIG/) v = n % 5 == 1 ? s : 0
			if (series ~ /last_run_own_errors/) v = n % 5 == 1
			if (series ~ /quarantined/ && n % 17 != 7) continue
			if (series ~ /_timestamp_seconds/) v = n % 50 == 7 ? begin : at
			if (series ~ /(leaked|unexplained|used)_bytes/) v = (n + s) % 17 == 0 ? (n % 40 + 1) * 268435456 : 0
			if (series ~ /mode_info/ && n % 4 == 0) sub(/observe/, "enforce", series)
			if (series ~ /build_info/ && n % 10 == 0) sub(/version="/, "version=\"next-", series)
			gsub(/GPU-/, sprintf("GPU-%04d", n), series)
			if (!sub(/\{/, "{" target ",", series)) series = series "{" target "}"
			printf "%s %s %d\n", series, v, at
		}
		print "# EOF"
	}' >"$dir/fleet.om"
promtool tsdb create-blocks-from openmetrics "$dir/fleet.om" "$dir/fleet" >/dev/null
run_prometheus fleet "$dir/fleet"
# filled is a query as Grafana sends it with All chosen everywhere.
filled() {
	sed 's/\$__rate_interval/20m/g; s/\$__range/55m/g; s/\$__interval/5m/g; s/\$\(cluster\|partition\|instance\|gpu\)\b/.*/g; s/\$budget/2/g' <<<"$1"
}
jq -c '.panels[] | select(.type != "row")' "$dashboard" >"$dir/panels"
while read -r panel; do
	title=$(jq -r .title <<<"$panel") lines=0
	[ "$(jq '.targets | length' <<<"$panel")" -gt 0 ] || fail "panel \"$title\" asks nothing"
	while read -r target; do
		expr=$(filled "$(jq -r .expr <<<"$target")")
		! grep -q '\$[a-z]' <<<"$expr" || fail "panel \"$title\": no variable: $expr"
		how=(query -d time="$end")
		[ "$(jq .instant <<<"$target")" = true ] || how=(query_range -d start="$((begin + step))" -d end="$end" -d step="$step")
		curl -sG "$fleet/api/v1/${how[0]}" --data-urlencode "query=$expr" "${how[@]:1}" >"$dir/answer"
		got=$(jq 'select(.status == "success" and .warnings == null) | .data.result | length' "$dir/answer")
		[ "${got:-0}" -gt 0 ] || fail "panel \"$title\" has no data: $expr: $(jq -r '.error // ""' "$dir/answer")"
		[ "$(jq -r '[.format, .instant] | join(" ")' <<<"$target")" != "table false" ] || fail "panel \"$title\": a table of a range"
		for label in $(jq -r '.legendFormat // ""' <<<"$target" | grep -o '{{[a-z_]*}}' | tr -d '{}'); do
			jq -e --arg name "$label" '[.data.result[].metric | has($name)] | any' "$dir/answer" >/dev/null ||
				fail "panel \"$title\": nothing drawn has the label $label"
		done
		lines=$((lines + ${got:-0}))
	done < <(jq -c '.targets[]?' <<<"$panel")
	[ "$lines" -le 50 ] || [ "$(jq -r .type <<<"$panel")" = heatmap ] || fail "panel \"$title\" draws $lines lines of 100 nodes"
done <"$dir/panels"
# Each panel has an id, a title, and a place of its own inside the 24 columns.
jq -e '[.panels[].id] | length == (unique | length)' "$dashboard" >/dev/null || fail "two panels have one id"
jq -e '[.panels[] | .title != "" and .gridPos.w > 0 and .gridPos.h > 0 and .gridPos.x + .gridPos.w <= 24] | all' "$dashboard" >/dev/null ||
	fail "a panel has no title, or no place"
jq -e '[.panels[].gridPos as $p | range($p.w) as $x | range($p.h) as $y | [$p.x + $x, $p.y + $y]] | length == (unique | length)' \
	"$dashboard" >/dev/null || fail "a panel lies over another"
# Each variable offers values.
while read -r asks; do
	expr=$(filled "$asks")
	series=$(sed -n 's/^label_values(\(.*\), \([a-z_]*\))$/\1/p' <<<"$expr") label=$(sed -n 's/^label_values(\(.*\), \([a-z_]*\))$/\2/p' <<<"$expr")
	got=$(curl -sG "$fleet/api/v1/label/$label/values" --data-urlencode "match[]=$series" -d start="$begin" -d end="$end" | jq '.data | length')
	[ "${got:-0}" -ge 2 ] || fail "a variable offers ${got:-nothing}: $asks"
done < <(jq -r '.templating.list[] | select(.type == "query") | .query.query' "$dashboard")
# Each recorded series has data, with those that it stands on written out: the fleet's history has none.
awk '/^      - record: / { record = $3 } record && /^        expr: / { sub(/^        expr: /, ""); print record, $0; record = "" }' "$rules" >"$dir/records"
while read -r record expr; do
	for _ in 1 2 3; do
		while read -r other text; do expr=${expr//"$other"/"($text)"}; done <"$dir/records"
	done
	[[ $(query "$fleet" "$expr" "$end") == [1-9]* ]] || fail "$record has no data: $expr"
done <"$dir/records"
ok "each panel of the dashboard has data of many nodes, and few lines"

[ "$failed" = 0 ] || { echo "monitoring: $failed mistakes" >&2; exit 1; }
