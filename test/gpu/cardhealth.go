package main

import (
	"fmt"
	"os/exec"
	"strings"

	"bookend/internal/gpu"
	"bookend/test/gpu/record"
)

func (r *run) cardsCondition() {
	job := r.onEveryCard()
	all := job.AtEnd().Health
	r.check("GPUs whose condition is on record", fmt.Sprint(len(r.cards)), fmt.Sprint(len(all)))
	for _, h := range all {
		r.tell("%-18s %s\n", r.rec.Scenario, factsOf(h))
		r.healthy(h)
	}
}

func factsOf(h record.Health) string {
	words := []string{h.GPU}
	for _, f := range h.Facts {
		value := f.Value
		if f.Unknown != "" {
			value = "unknown: " + f.Unknown
		}
		words = append(words, f.Code+"="+value)
	}
	return strings.Join(append(words, "accounting="+h.Accounting), " ")
}

// onEvery are the facts that every card with a data centre's driver has.
var onEvery = []gpu.FactCode{
	gpu.ECCUncorrected, gpu.RemapPending, gpu.RemapFailed, gpu.RecoveryAction,
	gpu.PersistenceMode, gpu.ComputeMode,
}

// healthy wants a card's facts to be there, and to be what others than Bookend say.
func (r *run) healthy(h record.Health) {
	facts, read := map[string]string{"accounting": h.Accounting}, map[string]bool{}
	for _, f := range h.Facts {
		facts[f.Code], read[f.Code] = strings.TrimSpace(f.Value+" "+f.Unknown), f.Unknown == "" && f.Value != ""
	}
	for _, code := range onEvery {
		r.holds(string(code)+" was read", "true", facts[string(code)], read[string(code)])
	}
	truth := r.condition(h.GPU)
	r.holds("others than Bookend told", "some facts", fmt.Sprint(len(truth)), len(truth) >= 4)
	for _, code := range []gpu.FactCode{gpu.ECCUncorrected, gpu.RemapPending, gpu.RemapFailed, gpu.PersistenceMode,
		gpu.ComputeMode, "accounting"} {
		if want, told := truth[string(code)]; told {
			r.check(string(code), want, facts[string(code)])
		}
	}
}

// condition is what nvidia-smi says of a card, in the words of Bookend's facts; in a rehearsal, the world's own keys.
// What it does not tell is left out.
func (r *run) condition(uuid string) map[string]string {
	if w := r.site.World(r.node); w != nil {
		return r.worldly(func(key string) string {
			for i := range r.cards {
				if w.UUID(i) == uuid {
					return w.Get(fmt.Sprintf("gpu%d.%s", i, key))
				}
			}
			return ""
		})
	}
	r.record("condition", "-i", uuid, "-q", "-d", "ECC,ROW_REMAPPER,MEMORY,COMPUTE,ACCOUNTING")
	said := r.query(uuid, "--query-gpu=", "ecc.errors.uncorrected.volatile.total", "persistence_mode", "compute_mode",
		"accounting.mode")
	rows := r.query(uuid, "--query-remapped-rows=", "remapped_rows.pending", "remapped_rows.failure")
	facts := map[string]string{}
	for i, code := range []gpu.FactCode{gpu.ECCUncorrected, gpu.PersistenceMode, gpu.ComputeMode, "accounting"} {
		put(facts, code, said, i)
	}
	for i, code := range []gpu.FactCode{gpu.RemapPending, gpu.RemapFailed} {
		put(facts, code, rows, i)
	}
	return facts
}

func (r *run) worldly(get func(string) string) map[string]string {
	yes := map[string]string{"0": "no", "1": "yes"}
	return map[string]string{
		string(gpu.ECCUncorrected): get("ecc_uncorrected"), string(gpu.RemapPending): yes[get("remap_pending")],
		string(gpu.RemapFailed): yes[get("remap_failure")], string(gpu.PersistenceMode): map[string]string{"0": "off",
			"1": "on"}[get("persistence")],
	}
}

// query is one line of nvidia-smi's, field by field; none where it does not know the question.
func (r *run) query(uuid, query string, fields ...string) []string {
	args := []string{"-i", uuid, query + strings.Join(fields, ","), plainCSV}
	r.record("condition", args...)
	out, err := exec.Command(r.smi, args...).Output()
	said := strings.Split(strings.TrimSpace(string(out)), ", ")
	if err != nil || len(said) != len(fields) {
		return nil
	}
	return said
}

// put takes down what nvidia-smi said, in the words of Bookend's facts. Of what a card does not have it says N/A.
func put(facts map[string]string, code gpu.FactCode, said []string, i int) {
	if i >= len(said) || strings.Contains(said[i], "N/A") {
		return
	}
	value := said[i]
	switch {
	case code == gpu.ECCUncorrected:
	case code == gpu.RemapPending || code == gpu.RemapFailed:
		value = map[string]string{"0": "no", "1": "yes"}[strings.NewReplacer("No", "0", "Yes", "1").Replace(value)]
	default:
		value = strings.ToLower(strings.NewReplacer("Enabled", "on", "Disabled", "off").Replace(value))
	}
	facts[string(code)] = value
}
