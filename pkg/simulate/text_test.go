package simulate

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sample returns a report in which all figures are different and not zero.
func sample() Report {
	spread := func(n int64) Percentiles[int64] { return Percentiles[int64]{n, n + 1, n + 2, n + 3} }
	return Report{
		Version: ReportVersion, Program: "v1", Host: "login1", Cores: 64, Dir: "/scratch/me", Share: "lustre",
		Latency: 2 * time.Millisecond, Jitter: 3 * time.Millisecond, Rate: 40000, Skew: 50 * time.Millisecond, Peer: 10 * time.Second,
		Dies: WorkerDies, Ranks: 8, RoleFile: "job.yaml",
		Runs: []JobResult{{
			Nodes: 1024, Lifelines: transportTCP, Roles: &RoleCounts{5, 2000, 1999}, Gate: 1930 * time.Millisecond,
			Up: Percentiles[time.Duration]{510 * time.Millisecond, 720 * time.Millisecond, 830 * time.Millisecond, 940 * time.Millisecond},
			GateCalls: GateCalls{
				Worker: CallDistribution{Calls: spread(21), ByKind: map[string]Percentiles[int64]{"open": spread(6)}}, WorkerToGate: spread(26),
				Head: CallTotals{63, map[string]int64{"open": 17}}, ToGate: CallTotals{28123, map[string]int64{"open": 8101}}, Peak: 48770,
			},
			World: &WorldTiming{
				Ranks: 8, Fences: 4, Met: 1400 * time.Millisecond,
				Fence: Percentiles[time.Duration]{11 * time.Millisecond, 110 * time.Millisecond, 620 * time.Millisecond, 650 * time.Millisecond},
				Calls: CallTotals{31234, map[string]int64{"read": 1023, "write": 1024}},
			},
			Steady: &SteadyLoad{For: 28 * time.Second, Worker: 0.49, Head: 14.7, All: 521},
			End:    OrderlyEnd{Took: 13700 * time.Millisecond, Calls: 13423, Peak: 3395},
			Death: &DeathResult{
				Rank: 512, Took: Percentiles[time.Duration]{21 * time.Millisecond, 32 * time.Millisecond, 43 * time.Millisecond, 54 * time.Millisecond},
				Kind: "daemon-died", Why: "node 512 (n0512) was killed", Calls: 23456, Peak: 98760, Processor: 111 * time.Millisecond, Busy: 0.22,
			},
			Whole: CallTotals{56789, map[string]int64{"open": 16202}},
			Machine: MachineUse{
				Memory: 109 << 20, Heap: 44 << 20, Goroutines: 10646, Processor: 777 * time.Millisecond, Busy: 0.37, Others: 0.11,
			},
		}},
	}
}

func TestText(t *testing.T) {
	const want = `1,024 nodes in /scratch/me (lustre): 2.0 ms added to a call, 3.0 ms more at random, at most 40,000 calls per second, starts over 50 ms, roles of job.yaml, the death of a worker, peer timeout 10.00 s

  gate open     1.93 s after the start
  roles         5 with 2,000 instances and 1,999 endpoints
  nodes up      p50 720 ms, p99 830 ms, last 940 ms (first 510 ms)
  ranks         8 per node: all had left 4 fences, with a put each, 1.40 s after the gate
                a fence took p50 110 ms, p99 620 ms, at most 650 ms (at least 11 ms)
                in that time all nodes made 31,234 calls to the shared file system: 1,023 reads, 1,024 writes
  steady state  calls per second: 0.49 per worker, 15 of the head, 521 of all nodes, over 28.00 s
  end           13.70 s from the head's start of the shutdown until the last daemon had ended
  death         of node 512; the others returned after p50 32 ms, p99 43 ms, last 54 ms (first 21 ms), with 23,456 calls, at most 98,760 per second
                111 ms of processors: 22 % of 64 cores
  first cause   daemon-died: node 512 (n0512) was killed
  peer links    loopback TCP
  memory        109 MiB at most, 44 MiB of it Go heap; 10,646 goroutines; for all daemons together
  processors    777 ms to the gate: 37 % of 64 cores; other programs used 11 %

  calls               worker, until up     the head    all nodes   all nodes
                    min  p50  p99  max  to the gate  to the gate  to the end
  all, until up      21   22   23   24
  all, to the gate   26   27   28   29           63       28,123      56,789
  open                6    7    8    9           17        8,101      16,202

The metadata server will see 28,123 calls in 1.93 s, at most 48,770 per second; then 521 per second; at the end 13,423 calls in 13.70 s, at most 3,395 per second.

Times count from the start of the simulation. p50 and p99 are by nearest rank, over the nodes. The most calls per second are ten times those of the busiest 100 ms.
`
	if diff := cmp.Diff(want, sample().Text()); diff != "" {
		t.Error(diff)
	}
}

func TestTable(t *testing.T) {
	r := sample()
	r.Runs = append(r.Runs, JobResult{Nodes: 4096, Lifelines: transportNone, Failure: &Failure{
		Code: 66, Word: "share", Why: "cannot reach 3 of 4096 nodes", Codes: map[int]int{66: 4095, 76: 1},
	}})
	const want = `In /scratch/me (lustre): 2.0 ms added to a call, 3.0 ms more at random, at most 40,000 calls per second, starts over 50 ms, roles of job.yaml, the death of a worker, peer timeout 10.00 s

| nodes |  added |   gate | up p50 | up p99 | last up | worker calls | most | head calls | all calls | most /s | steady /s | head /s |     end |   peer links |  memory | goroutines | cores | roles | instances | ranks | all met | fence p50 | fence p99 | reads | writes | death p50 | death p99 |  last | death cores |
|------:|-------:|-------:|-------:|-------:|--------:|-------------:|-----:|-----------:|----------:|--------:|----------:|--------:|--------:|-------------:|--------:|-----------:|------:|------:|----------:|------:|--------:|----------:|----------:|------:|-------:|----------:|----------:|------:|------------:|
| 1,024 | 2.0 ms | 1.93 s | 720 ms | 830 ms |  940 ms |           27 |   29 |         63 |    28,123 |  48,770 |      0.49 |      15 | 13.70 s | loopback TCP | 109 MiB |     10,646 |  37 % |     5 |     2,000 |     8 |  1.40 s |    110 ms |    620 ms | 1,023 |  1,024 |     32 ms |     43 ms | 54 ms |        22 % |
| 4,096 | 2.0 ms | failed |      - |      - |       - |            - |    - |          - |         - |       - |         - |       - |       - |         none |   0 MiB |          0 |     - |     - |         - |     8 |       - |         - |         - |     - |      - |         - |         - |     - |           - |

4,096 nodes:
  FAILED with exit code 66 (share): cannot reach 3 of 4096 nodes
  The daemons ended with different exit codes: 4,095 with 66, 1 with 76

1,024 nodes: The metadata server will see 28,123 calls in 1.93 s, at most 48,770 per second; then 521 per second; at the end 13,423 calls in 13.70 s, at most 3,395 per second.

`
	if diff := cmp.Diff(want+tableLegend+worldLegend+r.formatNotes(), r.Table()); diff != "" {
		t.Error(diff)
	}
}

func TestNotes(t *testing.T) {
	const crowd, guests = "processors were all busy", "Other programs used this machine"
	for _, tc := range []struct {
		name         string
		busy, others float64
		crowd, guest bool
	}{
		{"quiet", 0.5, 0.1, false, false},
		{"all ours", 0.95, 0, true, false},
		{"others too", 0.5, 0.3, false, true},
		{"all together", 0.5, 0.4, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := sample()
			r.Runs[0].Machine.Busy, r.Runs[0].Machine.Others = tc.busy, tc.others
			for name, text := range map[string]string{"text": r.Text(), "table": r.Table()} {
				if strings.Contains(text, crowd) != tc.crowd || strings.Contains(text, guests) != tc.guest {
					t.Errorf("%s:\n%s", name, text)
				}
			}
		})
	}
}

// TestTextAndJSONAgree verifies that the text can be made from the JSON.
func TestTextAndJSONAgree(t *testing.T) {
	reports := map[string]Report{"a run that went well": sample()}
	failed := sample()
	failed.Runs[0].Failure = &Failure{Code: 76, Word: "peer-lost", Why: "node 7 (n0007) is lost"}
	reports["one that failed"] = failed
	for name, report := range reports {
		t.Run(name, func(t *testing.T) {
			var again Report
			data, err := json.Marshal(report)
			if err == nil {
				err = json.Unmarshal(data, &again)
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(report.Text()+report.Table(), again.Text()+again.Table()); diff != "" {
				t.Errorf("what was read from the JSON tells something else:\n%s", diff)
			}
		})
	}
}

// TestTextShowsAll verifies that every figure of the JSON is in the text, except for those with a
// listed reason.
func TestTextShowsAll(t *testing.T) {
	untold := map[string]string{
		".Version": "of the form, and no figure",
		".Program": "the user has started it",
		".Host":    "the user is on it",
		".Ranks":   "each run has it",
	}
	before := sample()
	before.Runs[0].Failure = &Failure{Code: 76, Word: "peer-lost", Why: "node 7 (n0007) is lost"}
	eachLeaf(reflect.ValueOf(&before).Elem(), "", func(path string, leaf reflect.Value) {
		was := reflect.New(leaf.Type()).Elem()
		was.Set(leaf)
		text := before.Text()
		change(leaf)
		same := before.Text() == text
		leaf.Set(was)
		if why := untold[path]; same && why == "" {
			t.Errorf("the text doesn't show %s", path)
		} else if !same && why != "" {
			t.Errorf("the text shows %s after all", path)
		}
	})
}

// eachLeaf visits all values without parts, except in maps, whose values cannot be set.
func eachLeaf(v reflect.Value, path string, visit func(path string, leaf reflect.Value)) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			eachLeaf(v.Field(i), path+"."+v.Type().Field(i).Name, visit)
		}
	case reflect.Pointer:
		eachLeaf(v.Elem(), path, visit)
	case reflect.Slice:
		for i := range v.Len() {
			eachLeaf(v.Index(i), fmt.Sprintf("%s[%d]", path, i), visit)
		}
	case reflect.Map:
	default:
		visit(path, v)
	}
}

// change changes a value considerably.
func change(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "!")
	case reflect.Float64:
		v.SetFloat(3*v.Float() + 2)
	default:
		v.SetInt(3*v.Int() + 1)
	}
}

// TestTextOfFailure verifies that a run that failed before the gate shows no figures of the gate.
func TestTextOfFailure(t *testing.T) {
	r := sample()
	r.Runs[0] = JobResult{
		Nodes: 3, Lifelines: transportMemory, Failure: &Failure{Code: 66, Word: "share", Why: "cannot reach 1 of 3 nodes", Codes: map[int]int{66: 3}},
		Whole: CallTotals{17, map[string]int64{"open": 17}}, Machine: MachineUse{Memory: 20 << 20, Heap: 1 << 20, Goroutines: 40},
	}
	const want = `  FAILED with exit code 66 (share): cannot reach 1 of 3 nodes

  peer links    memory
  memory        20 MiB at most, 1 MiB of it Go heap; 40 goroutines; for all daemons together

  calls               worker, until up     the head    all nodes   all nodes
                    min  p50  p99  max  to the gate  to the gate  to the end
  all, until up       0    0    0    0
  all, to the gate    -    -    -    -            -            -          17
  open                0    0    0    0            -            -          17

Peer links were simulated in memory: this shell allows too few open files for all connections (ulimit -n).
Times count`
	if got := r.Text(); !strings.Contains(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}
