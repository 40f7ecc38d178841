package affinity

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/gpu"
)

func TestTaskPlace(t *testing.T) {
	f := load(t, "dgx-h100")
	const onSocket0, onSocket1 = "0-13,112-125", "56-69,168-181"
	of := func(local int) LaunchedTask {
		return LaunchedTask{Launcher: "srun", Local: local, LocalCount: 8, NodeCPUs: 224}
	}
	ownGPUs, lost := of(5), LaunchedTask{Launcher: "flux run", Local: 5, NodeCPUs: 224}
	ownGPUs.OwnGPUs = true
	lostOwn := lost
	lostOwn.OwnGPUs = true
	for _, tc := range []struct {
		name  string
		task  LaunchedTask
		own   string // the CPUs that the launcher has bound it to
		env   string // CUDA_VISIBLE_DEVICES
		kinds ResourceKinds
		want  string // the place as text, and its note
		far   string
	}{
		{"its share, as by Assign", of(5), "0-223", "", all, "CPUs 70-83,182-195, memory 1, GPU 5, mlx5_9:1", ""},
		{"by where the launcher has bound it", of(5), onSocket1, "", all,
			"CPUs 56-69,168-181, memory 1, GPU 5, mlx5_9:1; CPUs are those that srun bound it to", ""},
		{"far from its GPU", of(5), onSocket0, "", all,
			"CPUs 0-13,112-125, memory 0, GPU 5, mlx5_9:1; CPUs are those that srun bound it to",
			"srun bound it to CPUs 0-13,112-125, but its GPU 5 is near CPUs 56-111,168-223"},
		{"far, which nobody wants to know", of(5), onSocket0, "", ResourceKinds{GPU: true}, "GPU 5", ""},
		{"bound, and GPUs of its own", ownGPUs, onSocket1, "4,5", all,
			"CPUs 56-69,168-181, memory 1, GPU 4,5, mlx5_6:1,mlx5_9:1; CPUs are those that srun bound it to", ""},
		{"GPUs of its own", ownGPUs, "0-223", "4,5", all,
			"CPUs 56-111,168-223, memory 1, GPU 4,5, mlx5_6:1,mlx5_9:1; CPUs are shared with " +
				"other ranks near the same GPUs: " +
				"srun shows each rank only its own GPUs", ""},
		{"no GPUs of its own", ownGPUs, "0-223", "NoDevFiles", all,
			"CPUs 70-83,182-195, memory 1, mlx5_6:1,mlx5_7:1,mlx5_8:1,mlx5_9:1,mlx5_10:1,mlx5_11:1", ""},
		{"all that the job has, where that is no cpuset",
			LaunchedTask{Launcher: "srun", Local: 1, LocalCount: 2, NodeCPUs: 28}, onSocket1, "",
			ResourceKinds{CPU: true}, "CPUs 63-69,175-181", ""},
		{"among nobody knows how many", lost, "0-223", "", all,
			"not bound; ranks share all CPUs and devices of the node: flux run does not report " +
				"how many ranks run on it",
			"ranks share all CPUs and devices of the node: flux run does not report how many ranks run on it"},
		{"the same, bound", lost, onSocket1, "", all,
			"CPUs 56-69,168-181, memory 1, mlx5_6:1,mlx5_7:1,mlx5_8:1,mlx5_9:1,mlx5_10:1,mlx5_11:1; " +
				"CPUs are those that flux run bound it to", ""},
		{"the same, with GPUs of its own", lostOwn, "0-223", "7", ResourceKinds{CPU: true, GPU: true},
			"CPUs 56-111,168-223, GPU 7; CPUs are shared with other ranks near the same GPUs: " +
				"flux run shows each rank only its own GPUs", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			delete(f.env, "CUDA_VISIBLE_DEVICES")
			if tc.env != "" {
				f.env["CUDA_VISIBLE_DEVICES"] = tc.env
			}
			found := VisibleNode{Node: f.discovered(), BoundCPUs: f.list(tc.own)}
			p, differences := tc.task.TaskAffinity(found, tc.kinds)
			if got := strings.TrimSuffix(p.String()+"; "+p.Note, "; "); got != tc.want {
				t.Errorf("it has %s, not %s", got, tc.want)
			}
			if got := strings.Join(differences, "\n"); got != tc.far {
				t.Errorf("it says %q, not %q", got, tc.far)
			}
		})
	}
}

// TestTasksHaveWhatRanksHave verifies that all tasks of a node, each of which determines its place
// for itself, together get the places that a daemon would assign to its ranks.
func TestTasksHaveWhatRanksHave(t *testing.T) {
	for _, name := range fixtures(t) {
		n := known(t, name)
		for _, locals := range []int{1, 2, 3, len(n.Cores), len(n.Cores) + 1} {
			var places []Affinity
			for local := range locals {
				p, differences := LaunchedTask{Local: local,
					LocalCount: locals}.TaskAffinity(VisibleNode{Node: n, BoundCPUs: n.CPUs}, all)
				if len(differences) > 0 {
					t.Errorf("%s: %v", name, differences)
				}
				places = append(places, p)
			}
			if diff := cmp.Diff(n.AssignRanks(locals, all), places); diff != "" {
				t.Errorf("%s, %d tasks: %s", name, locals, diff)
			}
		}
	}
}

// TestFindBehindABinding verifies on this machine that a bound thread finds all CPUs that it could
// use, and stays bound as before.
func TestFindBehindABinding(t *testing.T) {
	locked(func() {
		free, err := DiscoverForTask(gpu.Topology{}, os.LookupEnv)
		if err != nil || len(free.BoundCPUs) < 2 || !slices.Equal(free.BoundCPUs, free.CPUs) {
			t.Errorf("it finds %+v, %v: it takes a machine of two CPUs, of which nobody has "+
				"taken any from us", free, err)
			return
		}
		first := Affinity{CPUs: free.BoundCPUs[:1]}
		restore, _, err := first.BindThread()
		if err != nil {
			t.Error(err)
			return
		}
		bound, err := DiscoverForTask(gpu.Topology{}, os.LookupEnv)
		if err != nil || !slices.Equal(bound.BoundCPUs, first.CPUs) || !slices.Equal(bound.CPUs, free.CPUs) {
			t.Errorf("it finds %+v, %v", bound, err)
		}
		if now, err := threadAffinity(0); err != nil || !slices.Equal(now, first.CPUs) {
			t.Errorf("it was bound to %v, and is to %v, %v", first.CPUs, now, err)
		}
		if err := restore(); err != nil {
			t.Error(err)
		}
	})
}
