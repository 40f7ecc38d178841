package launcher

import (
	"slices"
	"testing"
)

// TestHosts verifies that the arguments that "bringupd hosts" passes to the remote side take
// precedence over the variables of the environment there.
func TestHosts(t *testing.T) {
	env := Environment(func(name string) (string, bool) {
		value, set := map[string]string{
			"RANK": "3", "WORLD_SIZE": "4", "SSH_CONNECTION": "10.0.0.9 5022 10.0.0.2 22",
			"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_NNODES": "1",
		}[name]
		return value, set
	})
	node := 1
	id, err := IdentifyDaemon(env, "box.lab", Overrides{NodeIndex: &node, Hosts: []string{"a", "me@b", "c"}, JobID: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if id.Launcher != LauncherHosts || id.NodeIndex != 1 || id.Size != 3 || id.Host != "b" || id.LaunchAddress != "10.0.0.9" ||
		!slices.Equal(id.Hosts, []string{"a", "b", "c"}) || id.RunName() != "x" {
		t.Errorf("got %+v", id)
	}
}
