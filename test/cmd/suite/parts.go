package main

// part is one command of the tests.
type part struct {
	name  string
	group string // the make target that runs it, besides make test-all
	gate  bool   // make test and CI run it, too
	lane  lane
	needs []string // functions of test/setup.sh, without have_, that must succeed first
	// command is run by sh in the repository's root. It exits with notRun if it cannot run; the last
	// line of its output is then the reason.
	command string
	lenient bool // not a failure, even in CI, if the part cannot run
}

// notRun is the exit code of a command that could not run.
const notRun = 77

// lane is a sequence of parts that run one after the other, concurrently with those of the other
// lane.
type lane int

const (
	// waits is the lane of parts that start jobs and mostly wait for them. The daemons of such jobs
	// use timeouts to detect failures, so this lane has priority for the processors.
	waits lane = iota
	// computes is the lane of all other parts.
	computes
	lanes // the number of lanes
	// alone is not a lane: its parts run before all others, one at a time, because they compare events
	// that are fractions of a second apart.
	alone = lanes
)

// coreFrameworks matches the end-to-end jobs with real frameworks that belong to the gate.
const coreFrameworks = "^(TestRayRunsATaskOnEveryNode|TestRayDeaths|TestMPIWorlds)$/^(exit|raylet|Open MPI 4|MPICH 4)"

// rootTests matches the end-to-end jobs that only root can run.
const rootTests = "GPU|Xid|NVMLHangs|Suspicious|Unfit|Odd|Mixed|CUDA|Fabric|WatchThat|Hosts|" +
	"^TestExec$|RestartWithout|Services|ThatTakesNothing|" +
	"ThatCannotBeUsed|DoctorFindsA|DoctorFindsPlanted"

// allParts lists the parts in the order in which each lane runs them and in which their needs are
// installed. Parts whose needs take long to install come late.
var allParts = []part{
	{name: "FUSE file system with injected faults", group: "share", gate: true, lane: waits,
		needs: []string{"cc", "fuse"}, command: "go test -timeout 15m -count=1 ./test/hostile"},
	{name: "end-to-end jobs on Slurm", group: "cluster", gate: true, lane: waits,
		needs:   []string{"cc", "testbed", "bubblewrap"},
		command: "go test -tags testbed -timeout 20m -count=1 ./test/e2e"},
	{name: "chaos: random faults in jobs on Slurm", group: "soak", gate: true, lane: waits,
		needs:   []string{"cc", "testbed"},
		command: "go test -tags testbed -timeout 10m -count=1 ./test/chaos"},
	{name: "end-to-end jobs with real Ray and MPI", group: "cluster", gate: true, lane: waits,
		needs: []string{"cc", "testbed", "ray", "mpis"},
		command: "go test -tags testbed,ray,recipes -timeout 20m -count=1 -run '" + coreFrameworks +
			"' ./test/e2e"},
	{name: "chaos: random faults in worlds of ranks", group: "soak", gate: true, lane: waits,
		needs:   []string{"cc", "mpis"},
		command: "go test -tags mpi -timeout 10m -count=1 ./test/worlds"},
	{name: "chaos: random faults in runs of roles", group: "soak", gate: true, lane: waits,
		needs: []string{"cc"}, command: "go test -timeout 10m -count=1 ./test/roleruns"},
	{name: "chaos: random faults in 200 runs of roles", group: "soak", lane: waits,
		needs: []string{"cc"}, command: "go test -timeout 30m -count=1 -run TestDrawn " +
			"./test/roleruns -seed=1001 -runs=200"},
	{name: "chaos: random failures in 100 runs with restarts", group: "soak", lane: waits,
		needs: []string{"cc"}, command: "go test -parallel 4 -timeout 15m -count=1 -run " +
			"TestDrawnFailures ./test/local -failures=100"},
	{name: "fault matrix: each file system fault in each phase", group: "share", lane: alone,
		needs: []string{"cc", "fuse"}, command: "go test -timeout 15m -count=1 ./test/faults"},
	{name: "testbed", group: "cluster", lane: waits, needs: []string{"cc", "testbed"},
		command: "go test -tags testbed -timeout 10m -count=1 ./test/testbed/..."},
	{name: "end-to-end jobs with real Ray, Dask, JAX, Lightning, MPI and rapidsmpf",
		group: "cluster", lane: waits,
		needs: []string{"cc", "testbed", "ray", "dask", "jax", "torch", "lightning",
			"mpis", "tadashi", "rapidsmpf", "llama", "routers"},
		command: "go test -tags testbed,ray,recipes -timeout 20m -count=1 -run " +
			"'Ray|Dask|JAX|Lightning|Torch|MPI|RapidsMPF|ComingFrom'" +
			" -skip '" + coreFrameworks + "' ./test/e2e"},
	// Do not run this concurrently with testbeds: UCX would bind to their networks, which come and go.
	{name: "MPI servers against real MPIs", group: "cluster", lane: waits,
		needs: []string{"cc", "mpis", "pmix"},
		command: "go test -tags mpi -timeout 15m -count=1 -run 'Real|Layout' " +
			"./pkg/ranks/pmi/... ./pkg/ranks/mpidetect"},
	{name: "drivers that are mpirun, of five MPIs", group: "cluster", lane: waits,
		needs: []string{"cc", "testbed", "mpis"},
		command: "go test -tags testbed,mpi -timeout 15m -count=1 -run " +
			"'OwnMPIRun|Rsh|Nested|FromMPIRun' ./test/e2e && " +
			"go test -tags mpi -timeout 5m -count=1 -run " +
			"'OwnMPIRun|StartedByMPIRun|Alone|WithMPI|RanksStartAgain' ./test/local"},
	{name: "launchers: mpirun, stand-ins of others", group: "cluster", lane: waits,
		needs:   []string{"cc", "testbed", "mpis"},
		command: "go test -tags testbed,starters -timeout 5m -count=1 -run Starters ./test/e2e"},
	// Skipped are tests that need root: to set answers of the stand-in for NVML, to start sshd, or to
	// write to the run directory of a job.
	// Without the tests whose programs need Python, which that Debian does not have.
	{name: "end-to-end jobs on Slurm 24.11, as a user with a long name", group: "cluster", lane: waits,
		needs: []string{"cc", "testbed", "debian13"},
		command: "sh test/debian13.sh go test -tags testbed -timeout 20m -count=1 -skip '" + rootTests +
			"|TwoComponents|RoleStepInAContainer' ./test/e2e -lanes 2 -user marie-luise.von-der-informatik"},
	{name: "the scripts of Ray, Dask and JAX on Slurm 24.11, as the same user", group: "cluster", lane: waits,
		needs: []string{"cc", "testbed", "debian13", "ray", "dask", "jax"},
		command: "sh test/debian13.sh go test -tags testbed,ray,recipes -timeout 20m -count=1 " +
			"-run '^(TestRayRunsATaskOnEveryNode|" +
			"TestRayWithASandboxOfItsOwn|TestRaySub|TestDaskFindsItsNodes|TestJAXFindsItsWorld)$' ./test/e2e" +
			" -user marie-luise.von-der-informatik"},
	{name: "a site's Slurm 24.11: shared nodes, memory, devices, preemption, /tmp of each job",
		group: "cluster", lane: waits, needs: []string{"cc", "testbed", "debian13"},
		command: "sh test/debian13.sh go test -tags testbed,site -timeout 20m -count=1 " +
			"-run '^TestSite' ./test/e2e -lanes 1 -user marie-luise.von-der-informatik"},
	{name: "end-to-end jobs on MooseFS", group: "cluster", lane: waits,
		needs: []string{"cc", "testbed"},
		command: "go test -tags testbed -timeout 10m -count=1 -run " +
			"'Driver|OneNode|SeesNothing|Term|Stop|Sandbox' ./test/e2e -share=moosefs"},

	{name: "lint", group: "lint", gate: true, lane: computes, needs: []string{"cc"},
		command: "sh test/lint.sh"},
	{name: "unit tests", group: "unit", gate: true, lane: computes, needs: []string{"cc"},
		command: "go test -race -p 4 -timeout 10m $(go list ./cmd/... ./deploy ./internal/... ./pkg/... " +
			"./test/nvml/... ./test/simulate ./test/users/... ./test/cmd/... | grep -v -e " +
			"/pkg/daemon/schedules -e '/pkg/ranks/rendezvous$')"},
	{name: "schedules: simulated interleavings of daemons and of ranks", group: "unit", gate: true,
		lane: computes, needs: []string{"cc"},
		command: "go test -timeout 10m ./pkg/daemon/schedules ./pkg/ranks/rendezvous"},
	{name: "jobs on this machine", group: "unit", gate: true, lane: computes, needs: []string{"cc"},
		command: "go test -race -parallel 6 -timeout 15m ./test/local/..."},
	{name: "defaults of a site in /etc/bringupd.yaml", group: "unit", gate: true, lane: computes,
		needs: []string{"cc", "bubblewrap"}, command: "go test -tags bwrap -timeout 5m -run '^TestSite' ./test/local"},
	{name: "report page in a browser", group: "soak", gate: true, lane: computes,
		needs:   []string{"browser", "axe"},
		command: "go test -tags browser -timeout 10m -count=1 -run Browser ./pkg/inspect/report"},
	{name: "stack dumps of real programs by py-spy and gdb", group: "unit", gate: true,
		lane:    computes,
		needs:   []string{"cc", "stacks"},
		command: "go test -tags stacks -timeout 10m -count=1 -run TestRealStacks ./pkg/process/stackdump"},
	{name: "fuzzing", group: "soak", lane: computes, needs: []string{"cc"},
		command: "sh test/fuzz.sh"},
	{name: "Kubernetes manifests against Kubernetes' own code", group: "unit", lane: computes,
		command: "cd test/kubernetes && go vet . && go test -timeout 10m ."},
	{name: "dashboard against Grafana's own schema", group: "unit", lane: computes,
		command: "cd test/grafana && go vet . && go test -timeout 5m -count=1 ."},
	{name: "recipes: real torch, Lightning, accelerate, DeepSpeed, JAX, Dask, rapidsmpf, llama.cpp, nginx and " +
		"HAProxy on this machine", group: "cluster",
		lane: computes,
		needs: []string{"cc", "dask", "torch", "lightning", "accelerate", "deepspeed", "jax", "stacks", "rapidsmpf",
			"llama", "openai", "routers"},
		command: "go test -tags recipes -timeout 10m -count=1 -run Recipes ./test/local"},
	{name: "metrics, dashboard and alerts with a real Prometheus", group: "cluster", lane: computes,
		needs:   []string{"cc", "prometheus"},
		command: "go test -tags prometheus -timeout 10m -count=1 ./test/prometheus"},
	{name: "packages in a fresh Debian, wheels in new virtual environments", group: "cluster", lane: computes,
		needs:   []string{"cc", "packages", "mypy"},
		command: "go test -tags packages -timeout 10m -count=1 ./test/package"},
	{name: "documentation site", group: "lint", lane: computes, needs: []string{"site"},
		command: "make -s site && go test -timeout 5m -count=1 ./test/site"},
	{name: "known vulnerabilities", group: "lint", lane: computes, needs: []string{"cc"},
		command: "sh test/vulnerabilities.sh", lenient: true}, // uses a public service
}
