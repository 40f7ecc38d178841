package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// report is a report in another project, and how a run ends whose program behaves like the one that
// the report is about. reports.md has more of them.
type report struct {
	name    string // the project and the number
	nodes   int
	flags   []string
	roles   string // the file of roles; empty: none
	program string // the driver or the ranks, for a shell; empty: none
	output  string // the content of the file $OUTPUT
	want    string // the code and the fields of the result
	line    string // the error in the result
}

// client is a primary role that runs until the end.
const client = "\n- {name: client, nodes: head, primary: true, command: exec sleep 300}\n"

// worldOfTwo are the flags of a world of two ranks on two nodes.
var worldOfTwo = []string{"--ranks-per-node=1", "--oversubscribe"}

var reports = []report{
	{
		name: "vllm 48966: the server ends with 0 after its engine has died", nodes: 1, roles: `
- {name: engine, nodes: 1, command: "cat $OUTPUT >&2; exit 0"}` + client,
		output: `(EngineCore pid=12) ERROR 07-17 18:24:44 [core.py:502] EngineCore encountered a fatal error.
(APIServer pid=1) ERROR 07-17 18:24:44 [async_llm.py:480] Traceback (most recent call last):
(APIServer pid=1) ERROR 07-17 18:24:44 [async_llm.py:480]   File "core_client.py", line 883, in get_output_async
(APIServer pid=1) ERROR 07-17 18:24:44 [async_llm.py:480]     raise self._format_exception(outputs) from None
(APIServer pid=1) ERROR 07-17 18:24:44 [async_llm.py:480] vllm.v1.engine.EngineDeadError: EngineCore has died.
INFO:     Shutting down
INFO:     Finished server process [1]
`,
		want: `77 | 77 service kind=service`,
		line: "vllm.v1.engine.EngineDeadError: EngineCore has died.",
	},
	{
		name: "vllm 54553: the server stays after its engine has died", nodes: 1, roles: `
- name: engine
  nodes: 1
  command: ": >$D/dead; exec sleep 300"
  alive: {probe: "exec:[ ! -e $D/dead ]", after: 1s}` + client,
		want: `77 | 77 service kind=service`,
	},
	{
		name: "vllm 52907: both nodes of a server give up", nodes: 2, roles: `
- name: engine
  nodes: 2
  nodes-per-instance: 2
  command: "cat $OUTPUT >&2; exit 1"
  ready: exec:false` + client,
		output: `(Worker pid=24) ERROR 08-31 06:22:53 [executor.py:944] Traceback (most recent call last):
(Worker pid=24) ERROR 08-31 06:22:53 [executor.py:944]   File "distributed_c10d.py", line 2000, in helper
(Worker pid=24) ERROR 08-31 06:22:53 [executor.py:944] torch.distributed.DistStoreError: wait timeout after 1800000ms
Traceback (most recent call last):
  File "/usr/local/bin/vllm", line 10, in <module>
    sys.exit(main())
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}
`,
		want: "77 | 77 service", // either node may be the first
		line: "torch.distributed.DistStoreError: wait timeout after 1800000ms",
	},
	{
		name: "vllm 44751: a server that is not ready in time leaves its workers", nodes: 1, roles: `
- name: engine
  nodes: 1
  command: |
    setsid sh -c 'trap "" TERM; exec sleep 300' &
    trap "" TERM; sleep 300
  grace: 1s
  ready: {probe: "exec:false", timeout: 2s}` + client,
		want: `77 | 77 service kind=service`,
	},
	{
		name: "vllm 45064: two servers of a node get ports of their own", nodes: 1, roles: `
- name: engine
  nodes: 1
  per-node: 2
  command: "echo $BRINGUPD_PORT >$D/port.$BRINGUPD_ROLE_INDEX; exec sleep 300"
  ready: "exec:[ -s $D/port.$BRINGUPD_ROLE_INDEX ]"
- {name: client, nodes: head, primary: true, command: "[ $(cat $D/port.0) -lt $(cat $D/port.1) ]"}
`,
		want: "0 | 0 driver",
	},
	{
		name: "pytorch 195316: the end of the rendezvous hides the worker's error", nodes: 2, flags: worldOfTwo,
		program: `[ $RANK = 1 ] || exec sleep 300; cat $OUTPUT >&2; exit 1`,
		output: `Traceback (most recent call last):
  File "train.py", line 3, in <module>
ValueError: loss is NaN
E0830 10:00:00.000000 17 torch/distributed/elastic/multiprocessing/api.py:988] failed (exitcode: 1) local_rank: 0
Traceback (most recent call last):
  File "launcher/api.py", line 331, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "launcher/api.py", line 350, in launch_agent
    spec.rdzv_handler.shutdown()
torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed.
`,
		want: `1 | 1 rank kind=rank phase=driver node=1 child="rank 1" code=1 rank=1`,
		line: "ValueError: loss is NaN",
	},
	{
		name: "pytorch 195543: a rank ends long before the others", nodes: 2, flags: worldOfTwo,
		program: `[ $RANK = 0 ] || sleep 3`,
		want:    "0 | 0 driver",
	},
	{
		name: "ray 62591: the services fail when they are ended", nodes: 2, flags: []string{
			`--head-cmd=trap "exit 1" TERM; while :; do sleep 0.1; done`,
			`--worker-cmd=trap "exit 1" TERM; while :; do sleep 0.1; done`},
		program: "true",
		want:    "0 | 0 driver",
	},
}

// TestReports starts a run for each of the reports, and compares its end.
func TestReports(t *testing.T) {
	for _, tc := range reports {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			flags, output := tc.flags, filepath.Join(dir, "output")
			if err := os.WriteFile(output, []byte(tc.output), 0o600); err != nil {
				t.Fatal(err)
			}
			if tc.roles != "" {
				config := filepath.Join(dir, "job.yaml")
				if err := os.WriteFile(config, []byte(strings.ReplaceAll("roles:"+tc.roles, "$OUTPUT", output)),
					0o600); err != nil {
					t.Fatal(err)
				}
				flags = append(flags, "--config="+config)
			}
			j := startLocal(t, tc.nodes, flags, strings.ReplaceAll(tc.program, "$OUTPUT", output))
			got := outcomeOf(j)
			var result record.Result
			if !j.Read(&result, signal.NameResult) || !strings.HasPrefix(got, tc.want) || result.ErrorLine != tc.line {
				t.Errorf("got  %s, %q\nwant %s, %q\n%s", got, result.ErrorLine, tc.want, tc.line, &j.Said)
			}
		})
	}
}
