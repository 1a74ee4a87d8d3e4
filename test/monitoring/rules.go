package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	rulesFile = "deploy/prometheus/rules.yml"
	testsFile = "test/monitoring/rules_test.yml"
)

func (b *bench) rules() error {
	_, err := command("promtool", "check", "rules", "--lint=all", "--lint-fatal", rulesFile)
	_, tested := command("promtool", "test", "rules", testsFile)
	return errors.Join(err, tested)
}

// planted changes each alert so that it never fires, then so that it always does: the tests must notice both.
func (b *bench) planted() error {
	data, err := os.ReadFile(rulesFile)
	if err != nil {
		return err
	}
	rules := string(data)
	var errs []error
	alerts := regexp.MustCompile(`(?m)^      - alert: (\S+)$`).FindAllStringSubmatchIndex(rules, -1)
	if len(alerts) < 10 {
		return fmt.Errorf("found %d alerts in %s", len(alerts), rulesFile)
	}
	expr := regexp.MustCompile(`(?s)        expr: (.*?)\n        (for|labels): `)
	for _, at := range alerts {
		name, from := rules[at[2]:at[3]], at[1]
		m := expr.FindStringSubmatchIndex(rules[from:])
		if m == nil {
			return fmt.Errorf("%s has no expression", name)
		}
		for _, other := range []string{"vector(1) > 2", "vector(1)"} {
			noticed, err := b.notices(rules[:from+m[2]] + other + rules[from+m[3]:])
			if err == nil && !noticed {
				err = fmt.Errorf("%s with the expression %q passes the tests", name, other)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// notices reports whether the tests fail with these rules.
func (b *bench) notices(rules string) (bool, error) {
	tests, err := os.ReadFile(testsFile)
	if err != nil {
		return false, err
	}
	file := filepath.Join(b.dir, "planted.yml")
	test := filepath.Join(b.dir, "planted_test.yml")
	err = errors.Join(
		os.WriteFile(file, []byte(rules), 0o644),
		os.WriteFile(test, []byte(strings.Replace(string(tests), "../../"+rulesFile, file, 1)), 0o644))
	if err != nil {
		return false, err
	}
	if _, err := command("promtool", "check", "rules", file); err != nil {
		return false, err
	}
	_, err = command("promtool", "test", "rules", test)
	return err != nil, nil
}
