# Judges a profile as go tool cover reads it: how much of each measured package was reached, and whether gaps.txt
# explains the rest. A block that any process has reached is reached. It runs in the root of the tree.
#
#   awk -v least=PERCENT -v measured="PACKAGE ..." -f judge.awk gaps.txt PROFILE

# complain counts what is wrong.
function complain(text) { print text | "sort"; wrong++ }

# An entry of gaps.txt is a line with the block and indented lines with the reason.
NR == FNR && (/^#/ || !NF) { next }
NR == FNR && /^[^ \t]/ {
	if ($0 in line) complain(FILENAME ":" FNR ": stands there twice: " $0)
	entry = $0; line[entry] = FNR; next
}
NR == FNR { gsub(/^[ \t]+|[ \t]+$/, ""); reason[entry] = reason[entry] " " $0; next }

# "bookend/internal/x/y.go:1.2,3.4 statements count"
/^bookend\// && $2 > 0 {
	statements[$1] = $2
	if ($3 > 0) reached[$1] = 1
}

# code reads a source once: its lines, and the function that each stands in.
function code(file,    n, text, name) {
	if (file in lines) return
	name = "-"
	while ((getline text < file) > 0) {
		source[file, ++n] = text
		if (text ~ /^func /) {
			name = text; sub(/^func (\([^)]*\) )?/, "", name); sub(/[\[(].*/, "", name)
		}
		inside[file, n] = name
	}
	lines[file] = n
	close(file)
}

function trim(text) { gsub(/^[ \t]+|[ \t]+$/, "", text); return text }

# key names a block by its package, its function and the text with which it begins, which outlive a change of lines: the
# rest of its first line or, where that holds no statement, as behind "{", the whole line with the next one.
function key(file, row, column,    rest, next_row) {
	code(file)
	rest = substr(source[file, row], column); sub(/^[ \t]*\{/, "", rest); rest = trim(rest)
	if (rest == "" || rest ~ /^\/\//) {
		next_row = row + 1
		while (next_row < lines[file] && trim(source[file, next_row]) ~ /^(\/\/.*)?$/) next_row++
		rest = trim(source[file, row]) " " trim(source[file, next_row])
	}
	return substr(file, 1, match(file, /\/[^\/]*$/) - 1) " " inside[file, row] ": " rest
}

END {
	count = split(measured, packages, " ")
	for (block in statements) {
		split(block, at, /[:.,]/) # bookend/internal/x/y go 1 2 3 4
		file = substr(at[1], 9) ".go"
		package = substr(file, 1, match(file, /\/[^\/]*$/) - 1)
		total[package] += statements[block]
		if (block in reached) good[package] += statements[block]
		if (index(" " measured " ", " " package " ") == 0) continue # a program
		name = key(file, at[3], at[4])
		if (block in reached) {
			reached_key[name] = 1
		} else {
			missed[name] = file ":" at[3]
		}
	}
	for (i = 1; i <= count; i++) {
		percent = total[packages[i]] ? 100 * good[packages[i]] / total[packages[i]] : 0
		printf "%-20s %4d of %4d statements  %5.1f %%\n", packages[i], good[packages[i]], total[packages[i]], percent
		if (percent < least) complain(packages[i] ": less than " least " % of its statements were reached")
	}
	for (name in missed) if (!(name in line)) complain(missed[name] ": not reached and not explained: " name)
	for (name in line) {
		where = "gaps.txt:" line[name] ": "
		if (reason[name] ~ /^ *(sometimes:)? *$/) complain(where "no reason for " name)
		if (name in missed) continue
		if (!(name in reached_key)) complain(where "there is no such block: " name)
		else if (reason[name] !~ /^ sometimes: /)
			complain(where "this is reached: remove the entry, or begin its reason with \"sometimes: \": " name)
	}
	exit wrong > 0
}
