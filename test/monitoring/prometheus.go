package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// daemon is a program that serves on a port of the loopback.
type daemon struct {
	cmd *exec.Cmd
	log string
	url string
}

// patience is the longest wait for a daemon, and for what it should come to know.
const patience = 60 * time.Second

// serve starts a program and waits until it answers on its path; args has one %s for its address.
func serve(log, path, name string, args ...string) (*daemon, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	l.Close()
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	d := &daemon{cmd: exec.Command(name, append(args, "--web.listen-address="+address)...), log: log, url: "http://" + address}
	d.cmd.Stdout, d.cmd.Stderr = out, out
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	err = until(name+" answers", func() error { _, err := d.get(path); return err })
	if err != nil {
		said, _ := os.ReadFile(log)
		return nil, errors.Join(err, d.stop(), fmt.Errorf("it said:\n%s", said))
	}
	return d, nil
}

func (d *daemon) stop() error {
	if err := d.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	ended := time.AfterFunc(patience, func() { _ = d.cmd.Process.Kill() })
	defer ended.Stop()
	_ = d.cmd.Wait()
	return nil
}

func (d *daemon) get(path string) ([]byte, error) {
	client := http.Client{Timeout: patience}
	answer, err := client.Get(d.url + path)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %.500s", path, answer.Status, body)
	}
	return body, err
}

// until tries again and again; the last error is what was missing.
func until(what string, try func() error) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
	}
}

// exporter serves the textfiles of a folder, and nothing else.
func (b *bench) exporter(folder string) (*daemon, error) {
	return serve(filepath.Join(b.dir, "node_exporter.log"), "/metrics", "prometheus-node-exporter",
		"--collector.disable-defaults", "--collector.textfile", "--collector.textfile.directory="+folder)
}

// prometheus runs on the data of a folder, with these scrape targets.
func (b *bench) prometheus(data string, targets ...string) (*daemon, error) {
	rules, err := filepath.Abs(rulesFile)
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\n", rules)
	for _, t := range targets {
		config += fmt.Sprintf("scrape_configs: [{job_name: node, static_configs: [{targets: [%q], labels: {cluster: alpha}}]}]\n", t)
	}
	file := filepath.Join(b.dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return nil, err
	}
	if _, err := command("promtool", "check", "config", file); err != nil {
		return nil, err
	}
	return serve(filepath.Join(b.dir, "prometheus.log"), "/-/ready", "prometheus", "--config.file="+file, "--storage.tsdb.path="+data,
		"--storage.tsdb.retention.time=10y", "--web.console.templates=", "--web.console.libraries=")
}

// series is one line of an answer: its labels, and its last value.
type series struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
	Values [][2]any          `json:"values"`
}

func (s series) last() float64 {
	pair := s.Value
	if len(s.Values) > 0 {
		pair = s.Values[len(s.Values)-1]
	}
	text, _ := pair[1].(string)
	value, _ := strconv.ParseFloat(text, 64)
	return value
}

// ask calls the API; path has the query.
func ask[T any](d *daemon, path string, values url.Values) (data T, err error) {
	body, err := d.get("/api/v1/" + path + "?" + values.Encode())
	if err != nil {
		return data, err
	}
	var answer struct {
		Status   string   `json:"status"`
		Error    string   `json:"error"`
		Warnings []string `json:"warnings"`
		Data     T        `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return data, err
	}
	if answer.Status != "success" || len(answer.Warnings) > 0 {
		return data, fmt.Errorf("%s: %s %s %q", path, answer.Status, answer.Error, answer.Warnings)
	}
	return answer.Data, nil
}

type result struct {
	Type   string   `json:"resultType"`
	Result []series `json:"result"`
}

func (d *daemon) query(expr string, at time.Time) ([]series, error) {
	r, err := ask[result](d, "query", url.Values{"query": {expr}, "time": {stamp(at)}})
	return r.Result, err
}

func (d *daemon) queryRange(expr string, from, to time.Time, step time.Duration) ([]series, error) {
	r, err := ask[result](d, "query_range", url.Values{"query": {expr}, "start": {stamp(from)}, "end": {stamp(to)}, "step": {strconv.Itoa(int(step.Seconds()))}})
	return r.Result, err
}

func stamp(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
