package main

// A part is one command of the tests.
type part struct {
	name  string
	group string // the make target that runs it, besides make test
	lane  lane
	// needs are what must be there before: functions of test/setup.sh.
	needs []string
	// command is given to sh, in the repository's root. It exits with notRun
	// where it can't run, and says why in its last line.
	command string
	// lenient is set where it is no failure, even in CI, if the part can't run.
	lenient bool
}

// notRun is the exit code of a command that could not run.
const notRun = 77

// A lane's parts run one after the other, beside those of the other lane.
type lane int

const (
	// waits is for parts that start jobs and mostly wait for them. Such a job
	// judges others by time: it comes first where both lanes want a processor.
	waits lane = iota
	// computes is for the others.
	computes
	lanes // how many there are
	// alone is no lane: its parts come before all others, with nothing beside
	// them. They tell by fractions of a second who was first.
	alone = lanes
)

// all are the parts of the tests, in the order in which each lane goes through
// them, and in which what they need is installed: what takes long to install is
// needed late.
var all = []part{
	{name: "a share that is slow, stale, lying or hung", group: "share", lane: waits, needs: []string{"cc", "fuse"},
		command: "go test -timeout 15m -count=1 ./test/hostile"},
	{name: "each fault of a share in each phase", group: "share", lane: alone, needs: []string{"cc", "fuse"},
		command: "go test -timeout 15m -count=1 ./test/faults"},
	{name: "the testbed itself", group: "cluster", lane: waits, needs: []string{"cc", "testbed", "gridengine"},
		command: "go test -tags testbed -timeout 10m -count=1 ./test/testbed/..."},
	{name: "jobs on a real Slurm", group: "cluster", lane: waits, needs: []string{"cc", "testbed", "bubblewrap"},
		command: "go test -tags testbed -timeout 20m -count=1 ./test/e2e"},
	{name: "the same with a real Ray, Dask, JAX, Lightning and MPI", group: "cluster", lane: waits, needs: []string{"cc", "testbed", "ray", "dask", "jax", "torch", "lightning", "mpis"},
		command: "go test -tags testbed,ray,recipes -timeout 20m -count=1 -run 'Ray|Dask|JAX|Lightning|MPI' ./test/e2e"},
	// Not beside the others: UCX would bind to the networks of their beds, which come and go.
	{name: "ranks of real MPIs at the servers of PMI-1 and PMIx, and which MPI it is", group: "cluster", lane: waits, needs: []string{"cc", "mpis", "pmix"},
		command: "go test -tags mpi -timeout 15m -count=1 -run 'Real|Layout' ./pkg/pmi/... ./pkg/mpi"},
	{name: "drivers that are an mpirun of one of five MPIs", group: "cluster", lane: waits, needs: []string{"cc", "testbed", "mpis"},
		command: "go test -tags testbed,mpi -timeout 15m -count=1 -run 'OwnMPIRun|Rsh|Nested' ./test/e2e && go test -tags mpi -timeout 5m -count=1 -run 'OwnMPIRun|StartedByMPIRun|Alone' ./test/local"},
	{name: "daemons started by a real Grid Engine and by mpiruns, and by stand-ins of others", group: "cluster", lane: waits, needs: []string{"cc", "testbed", "gridengine", "mpis"},
		command: "go test -tags testbed,starters -timeout 5m -count=1 -run Starters ./test/e2e"},
	{name: "jobs on another share: MooseFS", group: "cluster", lane: waits, needs: []string{"cc", "testbed"},
		command: "go test -tags testbed -timeout 10m -count=1 -run 'Driver|OneNode|SeesNothing|Term|Stop|Sandbox' ./test/e2e -share=moosefs"},
	{name: "chaos", group: "soak", lane: waits, needs: []string{"cc", "testbed"},
		command: "go test -tags testbed -timeout 10m -count=1 ./test/chaos"},
	{name: "worlds of ranks that are struck", group: "soak", lane: waits, needs: []string{"cc", "mpis"},
		command: "go test -tags mpi -timeout 10m -count=1 ./test/worlds"},

	{name: "the linters", group: "lint", lane: computes, needs: []string{"cc"}, command: "sh test/lint.sh"},
	{name: "known vulnerabilities", group: "lint", lane: computes, needs: []string{"cc"}, command: "sh test/vulnerabilities.sh",
		lenient: true}, // their database is a service of others
	{name: "the tests beside the code of the daemons", group: "unit", lane: alone, needs: []string{"cc"},
		command: "go test -race -timeout 10m ./pkg/daemon"},
	{name: "those beside all other code", group: "unit", lane: computes, needs: []string{"cc"},
		command: "go test -race -timeout 10m $(go list ./cmd/... ./pkg/... ./test/nvml/... ./test/memory ./test/cmd/... | grep -v '/pkg/daemon$')"},
	{name: "jobs on this machine", group: "unit", lane: computes, needs: []string{"cc"},
		command: "go test -race -timeout 10m ./test/local/..."},
	{name: "what Kubernetes makes of deploy/kubernetes, by its own code", group: "unit", lane: computes,
		command: "cd test/kubernetes && go vet . && go test -timeout 10m ."},
	{name: "stacks of real programs by py-spy and gdb", group: "unit", lane: computes, needs: []string{"cc", "stacks"},
		command: "go test -tags stacks -timeout 10m -count=1 -run TestRealStacks ./pkg/why"},
	{name: "schedules of the daemons and of ranks that meet", group: "soak", lane: computes, needs: []string{"cc"},
		command: "go test -timeout 10m ./pkg/daemon/schedules ./pkg/meeting"},
	{name: "inputs that nobody has thought of", group: "soak", lane: computes, needs: []string{"cc"}, command: "sh test/fuzz.sh"},
	{name: "the report's page in a real browser", group: "soak", lane: computes, needs: []string{"browser"},
		command: "go test -tags browser -timeout 10m -count=1 -run Browser ./pkg/timeline/report"},
	{name: "a real Dask, and worlds of a real torch, Lightning and Dask", group: "cluster", lane: computes, needs: []string{"cc", "dask", "torch", "lightning", "stacks"},
		command: "go test -tags recipes -timeout 10m -count=1 -run Recipes ./test/local"},
	{name: "what users install, in a fresh Debian", group: "cluster", lane: computes, needs: []string{"cc", "packages"},
		command: "go test -tags packages -timeout 10m -count=1 ./test/package"},
	{name: "the client of a real Ray", group: "cluster", lane: computes, needs: []string{"cc", "ray"},
		command: "go test -tags ray -timeout 10m -count=1 -run TestRealRay ./pkg/framework/ray"},
}
