# give_back: rpm removes what nobody changed in /etc, but slurm.conf may still include it. What is there stays as it is.
give_back() {
	kept=/etc/bookend/slurm.kept
	[ -d "$kept" ] || return 0
	if [ ! -e /etc/bookend/slurm ]; then
		mv "$kept" /etc/bookend/slurm
		return 0
	fi
	(cd "$kept" && find . -type d) | while read -r folder; do
		mkdir -p -m 0755 "/etc/bookend/slurm/$folder"
	done
	(cd "$kept" && find . ! -type d) | while read -r file; do
		[ -e "/etc/bookend/slurm/$file" ] || mv "$kept/$file" "/etc/bookend/slurm/$file"
	done
	rm -rf "$kept"
}
