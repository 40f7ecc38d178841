package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/jobtest"
)

// recorded is the content of a run directory.
type recorded struct {
	told []told
	torn []string
}

// readRun reads the only run directory in a log directory, on the host and so not through the
// nodes' mounts.
func readRun(logs string, size int) (r recorded) {
	dirs, _ := filepath.Glob(filepath.Join(logs, "[0-9]*"))
	if len(dirs) == 0 {
		return recorded{}
	}
	if len(dirs) > 1 {
		r.torn = append(r.torn, fmt.Sprintf("there are several run directories: %v", dirs))
	}
	dir := dirs[0]
	var job record.Job
	if !r.read(filepath.Join(dir, signal.ControlDir, signal.NameJob), &job) && len(r.torn) == 0 {
		return r // no node has joined
	}
	for _, sub := range []string{signal.ControlDir, signal.NodesDir} {
		names, _ := os.ReadDir(filepath.Join(dir, sub))
		for _, name := range names {
			r.check(filepath.Join(dir, sub, name.Name()), job.Nonce)
		}
	}
	var result record.Result
	if r.read(filepath.Join(dir, signal.NameResult), &result) {
		var lost []int
		if result.Cause != nil {
			lost = slices.Clone(result.Cause.LostNodes)
		}
		for _, failure := range result.Consequences {
			lost = append(lost, failure.LostNodes...)
		}
		r.told = append(r.told,
			told{By: result.NodeIndex, Where: signal.NameResult, Code: result.Code,
				Cause: result.Cause, Lost: lost, Bad: result.BadNodes})
	}
	for node := range size {
		var abort record.Abort
		if r.read(filepath.Join(dir, signal.ControlDir, signal.AbortName(node, size)), &abort) {
			r.told = append(r.told,
				told{By: node, Where: "the abort", Code: abort.Code, Cause: &abort.Cause})
		}
	}
	return r
}

// read reads a record, and reports whether it exists.
func (r *recorded) read(path string, into any) bool {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		r.torn = append(r.torn, fmt.Sprintf("%s: %q: %v", path, data, err))
	}
	return err == nil
}

// check verifies that a record is complete and belongs to this attempt. Some records may be empty
// because their names carry the state: those of the drain and the join, on a full share only.
func (r *recorded) check(path, nonce string) {
	name := filepath.Base(path)
	if strings.HasPrefix(name, ".") || strings.Contains(name, string(record.StateHeartbeat)) {
		return // a dead daemon's temporary file, or a heartbeat
	}
	if info, err := os.Stat(path); err != nil || info.Size() == 0 && jobtest.MayBeEmpty(name) {
		return
	}
	var rec record.Mark
	if r.read(path, &rec) && rec.Nonce != nonce {
		r.torn = append(r.torn,
			fmt.Sprintf("%s is of the attempt %q, want %q", path, rec.Nonce, nonce))
	}
}

// runStory returns the content of a run directory for debugging.
func runStory(logs string) string {
	var b strings.Builder
	err := filepath.WalkDir(logs, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(&b, "--- %s (%d bytes)\n", strings.TrimPrefix(path, logs+"/"), len(data))
		if strings.Contains(path, "/control/") || strings.Contains(path, "/events/") ||
			strings.Contains(path, ".failed") || strings.Contains(path, "/daemon-") {
			b.Write(data)
		}
		return err
	})
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	return b.String()
}

// lifelinePorts returns the ports of the peer link that a job record contains.
func lifelinePorts(rec []byte) ([]int, error) {
	var job record.Job
	if err := json.Unmarshal(rec, &job); err != nil {
		return nil, err
	}
	var ports []int
	for _, address := range job.LinkAddresses {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			return nil, err
		}
		ports = append(ports, number)
	}
	if len(ports) == 0 {
		return nil, fmt.Errorf("the job record has no peer link: %s", rec)
	}
	slices.Sort(ports)
	return slices.Compact(ports), nil
}

// taskPattern matches srun's messages about tasks that have not ended with 0.
var taskPattern = regexp.MustCompile(
	`srun: error: \S+: tasks? ([0-9,-]+): (?:Exited with exit code (\d+)|(\w[\w ]*))`)

// taskSignals maps srun's descriptions of signals to exit codes.
var taskSignals = map[string]int{"Killed": killed, "Terminated": 143, "Aborted": 134,
	"Segmentation fault": 139}

// taskCodes returns the exit codes of all tasks, from srun's messages.
func taskCodes(stderr string, size int) []int {
	codes := make([]int, size)
	for _, found := range taskPattern.FindAllStringSubmatch(stderr, -1) {
		code, err := strconv.Atoi(found[2])
		if err != nil {
			code = taskSignals[strings.TrimSuffix(strings.TrimSpace(found[3]), " (core dumped)")]
		}
		for span := range strings.SplitSeq(found[1], ",") {
			from, to, isRange := strings.Cut(span, "-")
			if !isRange {
				to = from
			}
			first, _ := strconv.Atoi(from)
			last, _ := strconv.Atoi(to)
			for node := first; node <= last && node < size; node++ {
				codes[node] = code
			}
		}
	}
	return codes
}

var daemonPattern = regexp.MustCompile(`bringupd\[(\d+) `)

// lastWords returns the daemons' reports of the end on standard error, for those without a record.
func lastWords(stderr string, codes []int) (all []told) {
	for text := range strings.Lines(stderr) {
		var line struct {
			Daemon string      `json:"daemon"`
			Msg    string      `json:"msg"`
			Kind   record.Kind `json:"kind"`
		}
		if json.Unmarshal([]byte(text), &line) != nil || line.Kind == "" {
			continue
		}
		node := -1
		if found := daemonPattern.FindStringSubmatch(line.Daemon); found != nil {
			node, _ = strconv.Atoi(found[1])
		}
		if node < 0 || node >= len(codes) {
			continue
		}
		cause := &record.Failure{Kind: line.Kind, Message: line.Msg}
		cause.NodeIndex = node
		if lost := regexp.MustCompile(`node (\d+)[^:]*? is lost`).FindStringSubmatch(
			line.Msg); lost != nil {
			of, _ := strconv.Atoi(lost[1])
			cause.LostNodes = []int{of}
		}
		all = append(all, told{By: node, Where: "standard error", Code: codes[node], Cause: cause})
	}
	return all
}

// TestTaskCodes checks that the exit codes of tasks are read from messages of srun.
func TestTaskCodes(t *testing.T) {
	const stderr = `srun: error: n2: task 2: Killed
srun: error: n[0-1,3]: tasks 0-1,3: Exited with exit code 76
`
	if got, want := taskCodes(stderr, 5), []int{76, 76, killed, 76, 0}; !slices.Equal(got, want) {
		t.Errorf("the codes are %v, want %v", got, want)
	}
}

// TestReadRun checks that incomplete records are found, and that the recorded end is read.
func TestReadRun(t *testing.T) {
	logs := t.TempDir()
	write := func(name, content string) {
		path := filepath.Join(logs, "7.0", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
			os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("control/job", `{"v":2,"nonce":"a"}`)
	write("control/go", "")
	write("control/abort.0001",
		`{"v":2,"nonce":"a","rank":1,"code":76,"cause":{"kind":"peer-lost","lost":[0]}}`)
	write("nodes/0001.joined", `{"v":2,"nonce":"b"}`)
	write("nodes/0002.joined", `{"v":2,"no`)
	write("nodes/0003.joined", "")
	write("nodes/.0003.up.tmp", "half")
	r := readRun(logs, 4)
	if len(r.torn) != 3 {
		t.Errorf("torn are %q, want 0001.joined, 0002.joined and 0003.joined", r.torn)
	}
	if len(r.told) != 1 || r.told[0].By != 1 || r.told[0].Code != 76 ||
		!slices.Equal(r.told[0].Cause.LostNodes, []int{0}) {
		t.Errorf("told was %v", r.told)
	}
}

// TestLastWords checks that the cause is read from a daemon's last lines.
func TestLastWords(t *testing.T) {
	const stderr = `srun: error: something
{"level":"error","daemon":"bringupd[2 n6]","msg":"the head, node 0 (n4), is lost: node 2 …","kind":"peer-lost"}
{"level":"info","daemon":"bringupd[1 n5]","msg":"well"}
`
	got := lastWords(stderr, []int{0, 0, 76, 0})
	if len(got) != 1 || got[0].By != 2 || got[0].Code != 76 ||
		!slices.Equal(got[0].Cause.LostNodes, []int{0}) {
		t.Errorf("told was %v", got)
	}
}
