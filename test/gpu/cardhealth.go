package main

import (
	"fmt"
	"os/exec"
	"strings"

	"bookend/internal/gpu"
)

func (r *run) cardsCondition() {
	job := r.onEveryCard()
	all := job.AtEnd().Health
	r.check("GPUs whose condition is on record", len(r.cards), len(all))
	for _, h := range all {
		r.healthy(h)
	}
}

// conditions are the facts that others than Bookend tell, too: how nvidia-smi is asked, the key of a rehearsal's world,
// and Bookend's words for theirs.
var conditions = []struct {
	code       gpu.FactCode
	query, key string
	words      map[string]string
}{
	{gpu.ECCUncorrected, "--query-gpu=ecc.errors.uncorrected.volatile.total", "ecc_uncorrected", nil},
	{gpu.RemapPending, "--query-remapped-rows=remapped_rows.pending", "remap_pending", noYes},
	{gpu.RemapFailed, "--query-remapped-rows=remapped_rows.failure", "remap_failure", noYes},
	{gpu.PersistenceMode, "--query-gpu=persistence_mode", "persistence", onOff},
}

var (
	noYes = map[string]string{"0": "no", "1": "yes"}
	onOff = map[string]string{"Disabled": "off", "0": "off", "Enabled": "on", "1": "on"}
)

// healthy wants a card's facts to be there, every one that a data centre's driver has, and to be what others than
// Bookend say.
func (r *run) healthy(h gpu.Health) {
	uuid, line := string(h.Device), string(h.Device)
	facts, read := map[gpu.FactCode]string{}, map[gpu.FactCode]bool{}
	for _, f := range h.Facts {
		facts[f.Code], read[f.Code] = strings.TrimSpace(f.Value+" "+f.Unknown), f.Unknown == "" && f.Value != ""
		line += " " + string(f.Code) + "=" + facts[f.Code]
	}
	r.tell("%-18s %s\n", r.rec.Scenario, line)
	for _, code := range []gpu.FactCode{gpu.ECCUncorrected, gpu.RemapPending, gpu.RemapFailed, gpu.RecoveryAction,
		gpu.PersistenceMode} {
		r.holds(string(code)+" was read", "true", facts[code], read[code])
	}
	if r.fake == 0 {
		r.record("condition", "-i", uuid, "-q", "-d", "ECC,ROW_REMAPPER,MEMORY,COMPUTE")
	}
	told := 0
	for _, c := range conditions {
		said := r.others(uuid, c.query, c.key)
		if said == "" || strings.Contains(said, "N/A") { // the card does not have it
			continue
		}
		told++
		if word, known := c.words[said]; known {
			said = word
		}
		r.check(string(c.code), strings.ToLower(said), facts[c.code])
	}
	r.holds("others than Bookend told", "some facts", told, told >= 4)
}

// others is what nvidia-smi says of a card, empty where it does not know the question; in a rehearsal, the world's key.
func (r *run) others(uuid, query, key string) string {
	if w := r.site.World(r.node); w != nil {
		for i := range r.cards {
			if w.UUID(i) == uuid {
				return w.Get(fmt.Sprintf("gpu%d.%s", i, key))
			}
		}
		return ""
	}
	r.record("condition", "-i", uuid, query, plainCSV)
	out, err := exec.Command(r.smi, "-i", uuid, query, plainCSV).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
