package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manDate is in the page's foot. It is that of the page's form: a page must not change by itself.
const manDate = "November 2026"

const manFiles = `# FILES
*/etc/bookend/bookend.yaml*
: the configuration; in it paths.run and paths.var say where the records lie

*/run/bookend/state*, */var/lib/bookend/history*
: the records of this boot, and those on disk; root's

*/run/bookend/report*
: each job's start report, for the job's user to read

# ENVIRONMENT
**BOOKEND_CONFIG**
: another configuration. With root's rights it, and every directory above it, must be root's alone

**SLURM_CONF**
: Slurm's configuration, where it is not in its usual place

**NO_COLOR**, **TERM**
: with NO_COLOR set, or TERM unset or dumb, nothing is coloured

# SEE ALSO
**bookend-prolog**(8), **bookend-epilog**(8), **bookend-healthcheck**(8), **bookend.yaml**(5), **scontrol**(1), **nvidia-smi**(1)
`

// The man page is that of the program: all commands on one page.
func TestManPage(t *testing.T) {
	all := tree(t)
	var b strings.Builder
	fmt.Fprintf(&b, "%% \"BOOKEND\" \"1\" \"%s\" \"Bookend\" \"Bookend\"\n# NAME\nbookend - %s\n\n# SYNOPSIS\n", manDate, all[0].Short)
	for _, c := range all[1:] {
		if c.Name() != "config" {
			fmt.Fprintf(&b, "**%s**%s\n\n", c.CommandPath(), emphasis(strings.TrimPrefix(usage(c), c.CommandPath())))
		}
	}
	fmt.Fprintf(&b, "# DESCRIPTION\n%s\n\n# COMMANDS\n", long(all[0]))
	for _, c := range all[1:] {
		if c.Name() != "config" {
			manCommand(&b, c)
		}
	}
	b.WriteString("# OPTIONS\nEach command has these.\n\n")
	eachFlag(all[0], func(f *pflag.Flag) { manFlag(&b, f) })
	b.WriteString("# EXIT STATUS\n")
	for _, e := range exits {
		fmt.Fprintf(&b, "**%d**\n: %s\n\n", e.code, e.means)
	}
	b.WriteString(manFiles)
	const file = "../deploy/man/bookend.1"
	current(t, file, readIf(file), string(md2man.Render([]byte(b.String()))))
}

func manCommand(b *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(b, "## %s\n%s\n\n", c.CommandPath(), long(c))
	eachFlag(c, func(f *pflag.Flag) {
		if f.Name != "help" {
			manFlag(b, f)
		}
	})
	if c.Example != "" {
		fmt.Fprintf(b, "Examples:\n\n```\n%s\n```\n\n", c.Example)
	}
}

func manFlag(b *strings.Builder, f *pflag.Flag) {
	name, text := flagWords(f)
	flag, value, _ := strings.Cut(name, " ")
	if value != "" {
		value = " *" + value + "*"
	}
	fmt.Fprintf(b, "**%s**%s\n: %s\n\n", flag, value, text)
}

// emphasis sets the operands of a synopsis apart: words of capitals are what somebody puts there.
func emphasis(text string) string {
	return strings.NewReplacer("JOBID", "*JOBID*", "GPU", "*GPU*", "FILE", "*FILE*", "NODE", "*NODE*", "WHEN", "*WHEN*", "USER", "*USER*").Replace(text)
}
