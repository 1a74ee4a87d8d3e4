package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"bookend/internal/code"
	"bookend/internal/ledger"
	"bookend/internal/report"
	"bookend/internal/stage"
)

// mostOffered bounds what a completion offers: more is no help.
const mostOffered = 100

type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// fixed completes words that do not depend on the node.
func fixed(words ...string) completer {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// offered makes words with what they are for a shell: what stands in records is text from outside.
// Threat: a word with a line's end, or a quote that a shell takes for its own.
func offered(typed string, words []string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, w := range words {
		word, is, _ := strings.Cut(w, "\t")
		if !plainWord(word) || !strings.HasPrefix(strings.ToLower(word), strings.ToLower(typed)) || len(out) == mostOffered {
			continue
		}
		if is != "" {
			word += "\t" + string(report.Clean(is, nameWidth))
		}
		if !slices.Contains(out, word) {
			out = append(out, word)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

func plainWord(word string) bool {
	return word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_+.:/@", r))
	})
}

// onRecord are the node's runs, the newest first; none where they cannot be read: a completion says nothing.
func (a *app) onRecord() []ledger.Run {
	cfg, _ := stage.LoadConfig(a.env)
	all, err := read(a.env, cfg.Paths, a.node)
	if err != nil {
		return nil
	}
	return ledger.Newest(all.runs)
}

func (a *app) completeJobs(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words []string
	for _, r := range a.onRecord() {
		words = append(words, fmt.Sprintf("%s\t%s", r.JobName(), r.Job.User))
	}
	return offered(typed, words)
}

func (a *app) completeUsers(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	var words []string
	for _, r := range a.onRecord() {
		words = append(words, r.Job.User)
	}
	slices.Sort(words)
	return offered(typed, words)
}

// completeCards offers the cards of the node that records know.
func (a *app) completeCards(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	numbers, ids := map[int]bool{}, []string{}
	var words []string
	for _, r := range a.onRecord() {
		for _, d := range r.Devices {
			if !numbers[d.Index] {
				numbers[d.Index] = true
				words = append(words, fmt.Sprintf("%d\t%s", d.Index, d.Device.ID))
			}
			if id := string(d.Device.ID); id != "" && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(words)
	slices.Sort(ids)
	return offered(typed, append(words, ids...))
}

// completeCardsOr offers cards by their UUIDs, which nobody mistakes, and further words.
func (a *app) completeCardsOr(more ...string) completer {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		words := slices.Clone(more)
		for _, r := range a.onRecord() {
			for _, d := range r.Devices {
				words = append(words, string(d.Device.ID))
			}
		}
		return offered(typed, words)
	}
}

func (a *app) completeNodes(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	cfg, _ := stage.LoadConfig(a.env)
	nodes, err := recorded(cfg.Paths)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return offered(typed, nodes)
}

// completeCodes offers findings, with and without what all of them begin with.
func completeCodes(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	short := typed != "" && !strings.HasPrefix("BKD-", strings.ToUpper(typed)) && !strings.HasPrefix(strings.ToUpper(typed), "BKD-")
	var words []string
	for _, e := range code.All() {
		word := string(e.Code)
		if short {
			word = strings.TrimPrefix(word, "BKD-")
		}
		if typed != strings.ToUpper(typed) {
			word = strings.ToLower(word)
		}
		words = append(words, word+"\t"+e.Title)
	}
	return offered(typed, words)
}

// offerNothing keeps shells from offering files for commands that take no operand.
func offerNothing(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = fixed()
	}
	for _, c := range cmd.Commands() {
		offerNothing(c)
	}
}

// unquoted takes from the flags' descriptions the marks by which --help knows what is to be put there.
func unquoted(cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	plain := func(f *pflag.Flag) { _, f.Usage = flagWords(f) }
	cmd.Flags().VisitAll(plain)
	cmd.PersistentFlags().VisitAll(plain)
	for _, c := range cmd.Commands() {
		unquoted(c)
	}
}
