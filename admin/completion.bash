# What the script below uses of the package bash-completion, for where that is not installed: the words of the line,
# without breaking them at the characters that -n names.
if ! declare -F _get_comp_words_by_ref >/dev/null; then
	_get_comp_words_by_ref() {
		local keep="" i line=() glued=""
		while [ $# -gt 0 ]; do
			case "$1" in
			-n) keep=$2 && shift ;;
			esac
			shift
		done
		cword=0 words=()
		for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
			if [ ${#words[@]} -gt 0 ] && [ -n "$keep" ] && { [ -n "$glued" ] || [[ ${COMP_WORDS[i]} == ["$keep"]* && -n ${COMP_WORDS[i]} ]]; }; then
				words[${#words[@]}-1]+=${COMP_WORDS[i]}
				if [[ ${COMP_WORDS[i]} == ["$keep"] ]]; then glued=1; else glued=""; fi
			else
				words+=("${COMP_WORDS[i]}")
				glued=""
			fi
			if [ "$i" -eq "$COMP_CWORD" ]; then cword=$((${#words[@]} - 1)); fi
		done
		cur=${words[cword]}
		prev=""
		if [ "$cword" -gt 0 ]; then prev=${words[cword - 1]}; fi
	}
fi
if ! declare -F _filedir >/dev/null; then
	_filedir() {
		local name kind=-f
		if [ "${1-}" = -d ]; then kind=-d; fi
		while IFS= read -r name; do COMPREPLY+=("$name"); done < <(compgen "$kind" -- "$cur")
	}
fi

