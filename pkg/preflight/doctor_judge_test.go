package preflight

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/framework/ray"
	"github.com/bringupd/bringupd/pkg/ranks/mpidetect"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// well returns a launch on four nodes without problems.
func well() launchState {
	c := launchState{
		ExaminedLaunch: ExaminedLaunch{
			Identity: launcher.Identity{Launcher: launcher.LauncherSlurm, Size: 4,
				Hosts: []string{"n0", "n1", "n2", "n3"}},
			Framework: ray.Cluster{}, LogDir: "/share/logs",
		},
		Waited: time.Second, RoundTrips: map[int]time.Duration{},
	}
	for node, host := range c.Identity.Hosts {
		none := time.Duration(0)
		address := "10.0.0." + string(rune('1'+node))
		c.RoundTrips[node] = 40 * time.Millisecond
		c.Facts = append(c.Facts, DoctorFacts{
			NodeIndex: node, Host: host, Hostname: host + ".site",
			addressFacts: addressFacts{Address: address, LocalAddresses: []string{"127.0.0.1", address}},
			OwnName:      DNSResult{Host: host + ".site", Addresses: []string{address}},
			HeadName:     &DNSResult{Host: "n0", Addresses: []string{"10.0.0.1"}},
			Attempts: []ConnectAttempt{
				{To: "10.0.0.1:4711"},
				{To: "n0:4711", ByName: true},
			},
			Share:     LogDirFacts{FileSystem: "nfs", Offset: &none},
			Framework: &FrameworkVersion{Name: "ray", Version: "2.9.0"},
			Report: &check.Report{
				Findings: []check.Finding{
					{ID: "host.shm", Verdict: check.Pass, Observed: "64 GiB"},
					{ID: "net.ib", Verdict: check.Skip, Observed: "no RDMA NICs"},
				},
				Attributes: []check.Attribute{{ID: check.AttrGPUModel, Value: "H100"},
					{ID: check.AttrGPUCount, Value: "8"}, {ID: check.AttrKernel, Value: "6.1"}},
			},
		})
	}
	c.Facts[0].Ports = []ServicePort{{Name: "Ray's GCS", Number: 6379, Fixed: true}}
	c.Facts[0].Share.Space = &files.Space{Size: 1 << 40, Free: 1 << 39}
	return c
}

func TestAllIsWell(t *testing.T) {
	r := buildDoctorReport(new(well()), time.Second)
	for _, f := range r.Findings {
		if !slices.Contains(slices.Concat(ListDoctorCheckIDs(), ListNodeCheckIDs(nil)), f.ID) {
			t.Errorf("no rule can be for %s", f.ID)
		}
		if f.Verdict != check.Pass && f.ID != "net.ib" {
			t.Errorf("%+v", f)
		}
	}
	if r.Code != 0 || r.Verdict != check.Pass {
		t.Errorf("code %d, %s", r.Code, r.Verdict)
	}
	text := r.FormatText(false)
	for _, want := range []string{
		"PASS 4 nodes: ", "launch ", "slurm, one daemon on each of 4 nodes",
		"all 4 nodes can read and write /share/logs (nfs)",
		"a record of the head: 40ms, from n1", "4 nodes within 2s of each other",
		"free: 6379 (Ray's GCS)", "ray 2.9.0 (all 4 nodes)",
		"the head is reachable at 10.0.0.1 (all 4 nodes)", "64 GiB (all 4 nodes)", "512 GiB of 1.0 TiB free",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "RDMA") || !strings.Contains(r.FormatText(true), "RDMA") {
		t.Error("what was skipped of a node's checks is for who asks")
	}
}

// TestPlantedFaults verifies that each possible problem is found by the right line, with the odd
// nodes and the advice.
func TestPlantedFaults(t *testing.T) {
	span := func(d time.Duration) *time.Duration { return &d }
	for _, tc := range []struct {
		name    string
		plant   func(*launchState)
		id      string
		verdict check.Verdict
		nodes   []string
		says    string
		code    int
	}{
		{"tasks are not nodes", func(c *launchState) {
			c.Mistake = &launcher.LaunchError{Problem: "cannot run 8 daemons on 4 nodes",
				Fix: "start it with: srun --ntasks=4 bringupd …"}
			c.Identity.Size, c.Facts = 1, c.Facts[:1]
		}, "launch", check.Fail, nil, "cannot run 8 daemons on 4 nodes", 65},
		{"the shared file system hangs", func(c *launchState) {
			c.ShareErr,
				c.Facts = errors.New("no answer"), nil
		}, "share.seen", check.Fail, nil, "no answer", 66},
		{"a node says nothing", func(c *launchState) {
			c.WithoutFacts, c.Facts = []int{3},
				c.Facts[:3]
		}, "node.answer", check.Fail, []string{"n3"}, "no facts received from n3", 2},
		{"a node sees late", func(c *launchState) { c.RoundTrips[2] = 21 * time.Second },
			"share.delay", check.Warn, []string{"n2"}, "21s, from n2", 1},
		{"an MPI that the linker does not find", func(c *launchState) {
			linked := mpidetect.LinkedMPI{Program: "/app", Missing: "libmpi.so.40"}
			c.Facts[1].MPI = &DriverMPI{LinkedMPI: linked}
		}, "mpi", check.Fail, []string{"n1"}, "n1: /app needs libmpi.so.40, which was not found", 2},
		{"Open MPI without a libpmix", func(c *launchState) {
			c.Facts[2].MPI = &DriverMPI{LinkedMPI: mpidetect.LinkedMPI{Program: "/app",
				MPI: &mpidetect.Library{Kind: mpidetect.OpenMPI, Version: "5.0.11",
					Path: "/lib/libmpi.so.40"}}, NoPMIxReason: "cannot find it"}
		}, "mpi", check.Fail, []string{"n2"}, "which supports only PMIx: cannot find it", 2},
		{"another MPI on a node", func(c *launchState) {
			for node := range c.Facts {
				c.Facts[node].MPI = &DriverMPI{LinkedMPI: mpidetect.LinkedMPI{Program: "/app",
					MPI: &mpidetect.Library{Kind: mpidetect.MPICH, Version: "5.0.2"}}}
			}
			c.Facts[3].MPI.MPI.Version = "4.0.2"
		}, "mpi.alike", check.Fail, []string{"n3"}, "MPICH 5.0.2 on n[0-2]; MPICH 4.0.2 on n3", 2},
		{"another kind of share", func(c *launchState) { c.Facts[3].Share.FileSystem = "ext4" },
			"share.kind", check.Warn, []string{"n3"}, "nfs on n[0-2]; ext4 on n3", 1},
		{"a share that is full", func(c *launchState) {
			c.Facts[0].Share.Space = &files.Space{Size: 1 << 40, Free: 1 << 20}
		}, "host.share", check.Warn, nil, "1.0 MiB of 1.0 TiB free", 1},
		{"room that can't be told", func(c *launchState) {
			c.Facts[0].Share.Space, c.Facts[0].Share.SpaceErr = nil, "no answer"
		}, "host.share", check.Unknown, nil, "no answer", 3},
		{"ports that make no sense", func(c *launchState) { c.Facts[0].PortsErr = "cannot give port 1 to both" },
			"ports", check.Fail, []string{"n0"}, "to both", 2},
		{"a host with another name", func(c *launchState) { c.Facts[2].Hostname = "localhost" },
			"node.name", check.Warn, []string{"n2"},
			"the kernel's host name is localhost, but Slurm calls the node n2", 1},
		{"a name that leads elsewhere", func(c *launchState) {
			c.Facts[2].OwnName.Addresses = []string{"10.9.9.9"}
		}, "node.name", check.Fail, []string{"n2"}, "resolves to 10.9.9.9, which is not one of its addresses", 2},
		{"a name that is the loopback's", func(c *launchState) {
			c.Facts[2].OwnName.Addresses = []string{"127.0.1.1"}
		}, "node.name", check.Warn, []string{"n2"}, "which other nodes cannot reach", 1},
		{"a name that can't be resolved", func(c *launchState) {
			c.Facts[2].OwnName = DNSResult{Host: "n2", Err: "no such host"}
		}, "node.name", check.Warn, []string{"n2"}, "no such host", 1},
		{"no address", func(c *launchState) { c.Facts[2].AddressErr = "cannot find the address" },
			"node.name", check.Fail, []string{"n2"}, "cannot find the address", 2},
		{"two nodes with one name", func(c *launchState) {
			c.Facts[3].Hostname = c.Facts[1].Hostname // an additional problem of that node
			c.Policy.Rules = []check.Rule{{Pattern: "node.name", Effect: check.EffectOff}}
		}, "node.twins", check.Fail, []string{"n1", "n3"}, "n[1,3] share the host name n1.site", 2},
		{"two nodes with one address", func(c *launchState) {
			c.Facts[3].Address = c.Facts[1].Address
		}, "node.twins", check.Fail, []string{"n1", "n3"}, "the address 10.0.0.2", 2},
		{"the head's name is unknown", func(c *launchState) {
			c.Facts[3].HeadName, c.Facts[3].Attempts[1].Err = &DNSResult{Host: "n0",
				Err: "no such host"}, "no such host"
		}, "head.name", check.Warn, []string{"n3"}, "cannot resolve the head's host name n0: no such host", 1},
		{"the head can't be reached", func(c *launchState) {
			c.Facts[1].Attempts[0].Err, c.Facts[1].Attempts[1].Err = "no response within 5s", "no response within 5s"
		}, "head.address", check.Fail, []string{"n1"}, "cannot reach the head at 10.0.0.1: no response within 5s", 2},
		{"a clock an hour off", func(c *launchState) { c.Facts[2].Share.Offset = span(-time.Hour) },
			"clock", check.Fail, []string{"n2"}, "n2 is 1h0m0s ahead", 2},
		{"the head's clock an hour off", func(c *launchState) {
			for i := range c.Facts[1:] {
				c.Facts[i+1].Share.Offset = span(time.Hour)
			}
		}, "clock", check.Fail, []string{"n0"}, "n0 is 1h0m0s ahead", 2},
		{"a clock seconds off", func(c *launchState) {
			c.Facts[2].Share.Offset = span(5 * time.Second)
		}, "clock", check.Warn, []string{"n2"}, "n2 is 5s behind", 1},
		{"a broken ray", func(c *launchState) {
			c.Facts[1].Framework = &FrameworkVersion{Name: "ray", Err: "exit code 1", Lines: []string{"ImportError"}}
		}, "framework", check.Fail, []string{"n1"}, "exit code 1", 2},
		{"another ray", func(c *launchState) { c.Facts[1].Framework.Version = "2.8.0" },
			"framework.version", check.Fail, []string{"n1"}, "ray 2.8.0 on n1", 2},
		{"a check that never ended", func(c *launchState) {
			c.Facts[3].Report.Findings[0] = check.Finding{ID: "host.disk", Verdict: check.Wait, Observed: "no answer"}
		}, "host.disk", check.Fail, []string{"n3"}, "n3: no answer", 2},
		{"another GPU", func(c *launchState) { c.Facts[3].Report.Attributes[0].Value = "A100" },
			"x.gpu_model", check.Fail, []string{"n3"}, "A100 on n3", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := well()
			tc.plant(&c)
			r := buildDoctorReport(&c, time.Second)
			at := slices.IndexFunc(r.Findings,
				func(f check.Finding) bool { return f.ID == tc.id && f.Verdict == tc.verdict })
			if at < 0 {
				t.Fatalf("no %s of %s in\n%s", tc.verdict, tc.id, r.FormatText(false))
			}
			f := r.Findings[at]
			known := slices.Contains(ListDoctorCheckIDs(), f.ID)
			if !known && !slices.Contains(ListNodeCheckIDs(nil), f.ID) {
				t.Errorf("no rule can be for %s", f.ID)
			}
			if !slices.Equal(f.Nodes, tc.nodes) || !strings.Contains(f.Observed, tc.says) || r.Code != tc.code {
				t.Errorf("code %d, of %q: %s", r.Code, f.Nodes, f.Observed)
			}
			if f.Hint == "" && f.Verdict != check.Unknown && f.Observed != "n3: no answer" {
				t.Errorf("it tells nothing to do: %+v", f)
			}
			wrong := slices.DeleteFunc(slices.Clone(r.Findings), func(f check.Finding) bool { return f.IsQuiet() })
			if len(wrong) != 1 {
				t.Errorf("of one fault it tells %d times:\n%s", len(wrong), r.FormatText(false))
			}
		})
	}
}

func TestRulesApply(t *testing.T) {
	c := well()
	c.Facts[1].OwnName.Err = "no such host"
	for effect, want := range map[check.Effect]check.Verdict{
		check.EffectOff: check.Pass, check.EffectWarn: check.Warn, check.EffectFail: check.Fail,
	} {
		c.Policy = check.Policy{Rules: []check.Rule{{Pattern: "node.*", Effect: effect}}}
		if r := buildDoctorReport(&c, time.Second); r.Verdict != want {
			t.Errorf("%s: %+v", effect, r.Findings)
		}
	}
}

// TestAlone verifies that, with a single node, nothing is reported that a single node cannot
// determine.
func TestAlone(t *testing.T) {
	c := well()
	c.AloneReason = &launcher.LaunchError{Problem: "cannot tell",
		Fix: "start it with: srun bringupd …", LocalFix: "or on this machine: bringupd local", InShell: true}
	c.Identity.Launcher, c.Identity.Size, c.Facts, c.RoundTrips = launcher.LauncherLocal, 1, c.Facts[:1], nil
	r := buildDoctorReport(&c, time.Second)
	if r.Code != 0 || r.Subject != "n0 only" {
		t.Errorf("code %d, %s", r.Code, r.Subject)
	}
	text := r.FormatText(false)
	for _, want := range []string{"whether they share /share/logs; start it with: srun bringupd " +
		"doctor …\n", "not checked whether other nodes share it", "ray 2.9.0\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	for _, none := range []string{"head.", "x.", "(all"} {
		if strings.Contains(text, none) {
			t.Errorf("%q is in\n%s", none, text)
		}
	}
	// What a run on several nodes warns of is also found on one.
	c.Facts[0].OwnName.Addresses = []string{"10.0.0.1", "127.0.1.1"}
	r = buildDoctorReport(&c, time.Second)
	if r.Code != 1 || !slices.ContainsFunc(r.Findings, func(f check.Finding) bool {
		return f.ID == "node.name" && f.Verdict == check.Warn
	}) {
		t.Errorf("code %d: %+v", r.Code, r.Findings)
	}
}

// TestMergeNamesEach verifies that a difference between nodes is reported in one line that names
// the nodes of each value.
func TestMergeNamesEach(t *testing.T) {
	c := well()
	for i := range c.Facts {
		c.Facts[i].OwnName = DNSResult{Host: c.Identity.Hosts[i], Err: "no such host"}
	}
	text := buildDoctorReport(&c, time.Second).FormatText(false)
	of := func(node string) string { return node + ": cannot resolve its host name " + node + ": no such host; " }
	want := of("n0") + of("n1") + of("n2") + "and 1 more\n"
	if !strings.Contains(text, want) {
		t.Errorf("%q is missing in\n%s", want, text)
	}
	c = well()
	c.Identity.Launcher = launcher.LauncherRanks
	for i := range c.Facts {
		c.Facts[i].Host = "vm"
	}
	c.Facts[2].Framework.Version = "2.8.0"
	text = buildDoctorReport(&c, time.Second).FormatText(false)
	if !strings.Contains(text, "ray 2.8.0 on node 2\n") {
		t.Errorf("nobody knows which one is meant:\n%s", text)
	}
}
