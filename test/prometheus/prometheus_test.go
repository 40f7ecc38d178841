//go:build prometheus

// Package prometheus runs jobs whose metrics a real node-exporter and a real Prometheus collect.
package prometheus

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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/test/jobtest"
	"github.com/bringupd/bringupd/test/users"
)

const (
	deployed = "../../deploy/prometheus"
	driver   = ": >$D/started.$RANK; exec sleep 300"
	pause    = 20 * time.Millisecond // between two checks
)

func TestMain(m *testing.M) { jobtest.Main(m, nil, deployed+"/*", "testdata/*") }

// program returns the path of a program of Prometheus.
func program(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("BRINGUPD_TEST_PROMETHEUS")
	if dir == "" {
		t.Fatal("cannot run without Prometheus: BRINGUPD_TEST_PROMETHEUS must name a folder with its programs " +
			"(have_prometheus of test/setup.sh makes one)")
	}
	return filepath.Join(dir, name)
}

// TestAlerts checks the rules, their unit tests and the example of a configuration with promtool.
func TestAlerts(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"check", "rules", deployed + "/alerts.yml"},
		{"check", "config", deployed + "/prometheus.yml"},
		{"test", "rules", "testdata/alerts_test.yml"},
	} {
		if out, err := exec.Command(program(t, "promtool"), args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// site is a node-exporter whose textfile collector reads a directory of metrics, and a Prometheus
// that has the rules and reads them each second.
type site struct {
	t       *testing.T
	metrics string // the directory
	url     string // of Prometheus
}

func startSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, metrics: t.TempDir()}
	exporter, server := freeAddress(t), freeAddress(t)
	s.url = "http://" + server
	text, err := os.ReadFile(deployed + "/prometheus.yml")
	rules, rulesErr := filepath.Abs(deployed + "/alerts.yml")
	if err != nil || rulesErr != nil {
		t.Fatal(err, rulesErr)
	}
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	if err := os.WriteFile(config, []byte(strings.NewReplacer("15s", "1s", "localhost:9100", exporter,
		"alerts.yml", rules).Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(s.metrics, 0o777|os.ModeSticky),
		os.Chmod(filepath.Dir(s.metrics), 0o755)); err != nil {
		t.Fatal(err)
	}
	s.start("prometheus-node-exporter", "--web.listen-address="+exporter,
		"--collector.disable-defaults", "--collector.textfile", "--collector.textfile.directory="+s.metrics)
	s.start("prometheus", "--web.listen-address="+server, "--config.file="+config,
		"--storage.tsdb.path="+t.TempDir())
	s.await("node-exporter", `up`, func(all samples) bool { return all.sum() == 1 })
	return s
}

// freeAddress returns an address at which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// start starts a program that runs until the end of the test.
func (s *site) start(name string, args ...string) {
	s.t.Helper()
	said, err := os.Create(filepath.Join(s.t.TempDir(), "said"))
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(program(s.t, name), args...)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, _ := os.ReadFile(said.Name()); s.t.Failed() {
			s.t.Logf("%s says:\n%s", name, text)
		}
		_ = said.Close()
	})
}

// sample is a result of a query.
type sample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
}

type samples []sample

// sum returns the sum of the values.
func (all samples) sum() (sum float64) {
	for _, one := range all {
		text, _ := one.Value[1].(string)
		value, _ := strconv.ParseFloat(text, 64)
		sum += value
	}
	return sum
}

// get asks Prometheus, and returns the reason of a refusal.
func (s *site) get(path string, data any) error {
	client := http.Client{Timeout: jobtest.Ceiling, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(s.url + path)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	answer := struct {
		Error string `json:"error"`
		Data  any    `json:"data"`
	}{Data: data}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("%s: %w", response.Status, err)
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}

// query returns the results of a query.
func (s *site) query(expr string) (all samples, err error) {
	var data struct {
		Result samples `json:"result"`
	}
	err = s.get("/api/v1/query?query="+url.QueryEscape(expr), &data)
	return data.Result, err
}

// await waits until the results of a query are as expected.
func (s *site) await(what, expr string, expected func(samples) bool) {
	s.t.Helper()
	var all samples
	var err error
	for deadline := time.Now().Add(jobtest.Ceiling); time.Now().Before(deadline); time.Sleep(pause) {
		if all, err = s.query(expr); err == nil && expected(all) {
			return
		}
	}
	s.t.Fatalf("no %s in Prometheus: %s has %v, %v\n%s", what, expr, all, err, s.files())
}

// awaitSum waits until the results of a query have a sum.
func (s *site) awaitSum(what string, expr string, sum float64) {
	s.t.Helper()
	s.await(what, expr, func(all samples) bool { return all.sum() == sum })
}

// files returns the files of the directory of metrics.
func (s *site) files() string {
	var text strings.Builder
	paths, _ := filepath.Glob(filepath.Join(s.metrics, "*"))
	for _, path := range paths {
		content, _ := os.ReadFile(path)
		fmt.Fprintf(&text, "%s:\n%s", path, content)
	}
	return text.String()
}

// run starts a run of two nodes on this machine.
func (s *site) run(t *testing.T, name string, script string, flags ...string) *jobtest.Job {
	t.Helper()
	dir := t.TempDir()
	j := &jobtest.Job{T: t, Dir: dir, Logs: filepath.Join(dir, "logs"), Name: name, Size: 2,
		Mark: jobtest.Mark("D=" + dir)}
	words := append([]string{jobtest.Bringupd, "local", "--nodes=2", "--job-id=" + name,
		"--log-dir=" + j.Logs, "--metrics-dir=" + s.metrics, "--peer-timeout=3s"}, flags...)
	j.Start(nil, append(words, "--", "sh", "-c", script)...)
	return j
}

// expectEnd waits for the end of a run.
func expectEnd(t *testing.T, j *jobtest.Job, code int) {
	t.Helper()
	if got := j.AwaitEnd(jobtest.Ceiling); got != code {
		t.Fatalf("the run ended with %d, not %d:\n%s", got, code, &j.Said)
	}
}

// TestPrometheus checks that Prometheus keeps how runs have ended, and that the rules and the
// dashboard have data.
func TestPrometheus(t *testing.T) {
	s := startSite(t)
	own := fmt.Sprintf(`{uid="%d"}`, os.Geteuid())

	// A worker is killed, and then no daemon is left.
	failed := s.run(t, "failed", driver, "--ranks-per-node=1")
	failed.NeedFile(filepath.Join(failed.Dir, "started.1"))
	failed.Signal(failed.Daemon(1), syscall.SIGKILL)
	expectEnd(t, failed, 76)
	s.awaitSum("failed run", `bringupd_runs_ended_total{outcome="peer-lost",code="76"}`, 1)
	s.await("end of the failed run", `bringupd_up`, func(all samples) bool { return len(all) == 0 })

	// Two runs at the same time.
	pair := []*jobtest.Job{s.run(t, "first", "true"), s.run(t, "second", "true")}
	for _, j := range pair {
		expectEnd(t, j, 0)
	}
	s.awaitSum("pair of runs", `bringupd_runs_ended_total{outcome="driver",code="0"}`, 2)
	s.awaitSum("verdict of the failed run", `bringupd_runs_ended_total{outcome="peer-lost"}`, 1)

	// Each of two daemons that a launcher has started is a node that can be blamed.
	blamed := s.startNodes(t)
	blamed.NeedFile(filepath.Join(blamed.Dir, "started.1"))
	blamed.Signal(blamed.Daemon(1), syscall.SIGKILL)
	expectEnd(t, blamed, 76)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	s.awaitSum("bad node", fmt.Sprintf(`bringupd_bad_node_total{uid="%d",node=%q}`, os.Geteuid(), host), 1)
	s.awaitSum("blame of this day", fmt.Sprintf(`bringupd:bad_node:increase1d{node=%q}`, host), 1)
	s.awaitSum("runs of the last hours", `bringupd:runs_ended:increase6h`+own, 4)

	t.Run("two users", s.otherUser)

	// While a run reports steps, all metrics are there.
	steps := s.run(t, "steps", `i=0; until [ -e $D/enough ]; do i=$((i+1)); echo step $i; sleep 0.05; done`,
		`--progress=step (\d+)`)
	s.awaitSum("nodes that are up", `bringupd_up`, 2)
	s.await("steps", `bringupd_steps_per_second`, func(all samples) bool { return all.sum() > 0 })
	t.Run("dashboard", s.checkDashboard)
	t.Run("rules", s.checkRules)
	steps.Write("enough", "")
	expectEnd(t, steps, 0)
	s.awaitSum("unreadable files", `max_over_time(node_textfile_scrape_error[1h])`, 0)
}

// startNodes starts two daemons as a launcher does.
func (s *site) startNodes(t *testing.T) *jobtest.Job {
	t.Helper()
	dir := t.TempDir()
	j := &jobtest.Job{T: t, Dir: dir, Logs: filepath.Join(dir, "logs"), Name: "blamed", Size: 2,
		Mark: jobtest.Mark("D=" + dir)}
	daemon := jobtest.Bringupd + " run --nnodes=2 --ranks-per-node=1 --job-id=blamed --log-dir=" + j.Logs +
		" --metrics-dir=" + s.metrics + " --peer-timeout=3s --rank=%d -- sh -c '" + driver + "'"
	j.Start(nil, "sh", "-c", fmt.Sprintf(daemon+" & "+daemon, 1, 0))
	return j
}

// otherUser checks that the runs of another user are counted in a file of their own.
func (s *site) otherUser(t *testing.T) {
	users.Need(t)
	dir := users.Job.Dir(t)
	job := users.Job.Command(t.Context(), dir, users.Public(t, jobtest.Bringupd), "local", "--nodes=2",
		"--job-id=other", "--log-dir="+dir+"/logs", "--metrics-dir="+s.metrics, "--", "sh", "-c", "exit 3")
	out, err := job.CombinedOutput()
	if exit, _ := err.(*exec.ExitError); exit == nil || exit.ExitCode() != 3 {
		t.Fatalf("the run of the other user: %v\n%s", err, out)
	}
	s.awaitSum("run of the other user",
		fmt.Sprintf(`bringupd_runs_ended_total{uid="%d",outcome="driver",code="3"}`, users.Job.ID), 1)
	s.await("other user", `count by (uid) (bringupd_runs_ended_total)`,
		func(all samples) bool { return len(all) == 2 })
}

// ownMetric matches the name of a metric in a query.
var ownMetric = regexp.MustCompile(`\b(?:bringupd:|bringupd_|node_)[a-z_:0-9]+`)

// checkMetrics checks that Prometheus has the metrics of a query.
func (s *site) checkMetrics(t *testing.T, expr string) {
	t.Helper()
	var known []string
	if err := s.get("/api/v1/label/__name__/values", &known); err != nil {
		t.Fatal(err)
	}
	for _, name := range ownMetric.FindAllString(expr, -1) {
		if !slices.Contains(known, name) {
			t.Errorf("there is no metric %s, which is in the query %s", name, expr)
		}
	}
}

// checkDashboard checks that all queries of the dashboard have results.
func (s *site) checkDashboard(t *testing.T) {
	var dashboard struct {
		Templating struct {
			List []struct {
				Type  string `json:"type"`
				Query any    `json:"query"`
			} `json:"list"`
		} `json:"templating"`
		Panels []struct {
			ID      int    `json:"id"`
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	text, err := os.ReadFile(deployed + "/dashboard.json")
	if err == nil {
		err = json.Unmarshal(text, &dashboard)
	}
	if err != nil || len(dashboard.Panels) == 0 {
		t.Fatalf("the dashboard has %d panels, %v", len(dashboard.Panels), err)
	}
	ids := make(map[int]bool)
	for _, panel := range dashboard.Panels {
		if ids[panel.ID] || len(panel.Targets) == 0 {
			t.Errorf("the panel %q has the id %d and %d queries", panel.Title, panel.ID, len(panel.Targets))
		}
		ids[panel.ID] = true
		for _, target := range panel.Targets {
			// as Grafana replaces them
			expr := strings.NewReplacer("$__range", "1h", "$__rate_interval", "1m", "$run", ".*",
				"$uid", ".*").Replace(target.Expr)
			all, err := s.query(expr)
			if err != nil || len(all) == 0 || strings.Contains(expr, "$") {
				t.Errorf("the panel %q has %v, %v for %s", panel.Title, all, err, expr)
			}
			s.checkMetrics(t, expr)
		}
	}
	for _, variable := range dashboard.Templating.List {
		if text := fmt.Sprint(variable.Query); variable.Type == "query" {
			s.checkMetrics(t, text)
		}
	}
}

// checkRules checks that Prometheus has evaluated all rules, with metrics that exist.
func (s *site) checkRules(t *testing.T) {
	var rules struct {
		Groups []struct {
			Rules []struct {
				Name      string `json:"name"`
				Query     string `json:"query"`
				Health    string `json:"health"`
				LastError string `json:"lastError"`
				State     string `json:"state"`
			} `json:"rules"`
		} `json:"groups"`
	}
	if err := s.get("/api/v1/rules", &rules); err != nil || len(rules.Groups) == 0 {
		t.Fatalf("the rules are %v, %v", rules, err)
	}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if rule.Health != "ok" || rule.LastError != "" {
				t.Errorf("%s is %s: %s", rule.Name, rule.Health, rule.LastError)
			}
			s.checkMetrics(t, rule.Query)
		}
	}
}
