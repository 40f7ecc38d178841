package ranks

import (
	"strings"
	"testing"
)

// TestFindNodeLauncher verifies which commands start processes of one node only, and what the error
// says of them: their names, numbers of processes and programs.
func TestFindNodeLauncher(t *testing.T) {
	const script = "python train.py"
	for command, want := range map[string]nodeLauncher{
		"torchrun --nproc-per-node=4 train.py --lr 1": {"torchrun", "4",
			"python train.py --lr 1"},
		"/opt/venv/bin/torchrun --nproc_per_node gpu --standalone train.py": {"torchrun", "gpu", script},
		"torchrun --nnodes=1 train.py":                                      {"torchrun", "", script},
		"torchrun --nnodes 1:1 -m pkg.train x":                              {"torchrun", "", "python -m pkg.train x"},
		"torchrun --no-python ./train":                                      {"torchrun", "", ""},
		"torchrun --nnodes=2 --node-rank=0 --master-addr=n0 train.py":       {},
		"torchrun --nnodes 2 train.py":                                      {},
		"torchrun --rdzv_endpoint=n0:1 train.py":                            {},
		// a flag of the script
		"torchrun train.py --nnodes=2": {"torchrun", "",
			"python train.py --nnodes=2"},
		"python -m torch.distributed.run --nproc-per-node=2 train.py": {"python -m " +
			"torch.distributed.run", "2", script},
		"python3.11 -u -X faulthandler -m torch.distributed.launch train.py": {
			"python3.11 -m torch.distributed.launch", "", script},
		"python -m torch.distributed.run --node_rank=1 train.py": {},
		"python train.py -m torch.distributed.run":               {},
		"python -m train":              {},
		"python -m":                    {},
		"python":                       {},
		"env -i A=b torchrun train.py": {"torchrun", "", script},
		"env":                          {},
		"uv run torchrun --nproc-per-node=8 train.py":                  {"torchrun", "8", script},
		"accelerate launch --num_processes 8 train.py":                 {"accelerate launch", "8", script},
		"accelerate launch --num_machines 2 --machine_rank 0 train.py": {},
		"accelerate launch --config_file two_nodes.yaml train.py":      {},
		"accelerate config":                       {},
		"accelerate":                              {},
		"accelerate-launch train.py":              {"accelerate-launch", "", script},
		"ft_launcher --nproc-per-node=8 train.py": {"ft_launcher", "8", script},
		"./torchrunner train.py":                  {},
		"":                                        {},
	} {
		if got, is := findNodeLauncher(strings.Fields(command)); is != (want.name != "") || got != want {
			t.Errorf("%s: got %+v %v, want %+v", command, got, is, want)
		}
	}
}

func TestCheckCommand(t *testing.T) {
	argv := strings.Fields("torchrun --nproc-per-node=2 train.py --lr 1")
	for _, tc := range []struct {
		ranked bool
		says   []string
	}{
		{true, []string{"cannot run torchrun in each rank",
			"bringupd --ranks-per-node=2 -- python train.py --lr 1", "--node_rank=$GROUP_RANK", "sh -c"}},
		{false, []string{"cannot run torchrun as the driver of 4 nodes",
			"the other nodes would be idle", "bringupd --ranks-per-node=2 -- python train.py --lr 1"}},
	} {
		err := CheckCommand(argv, 4, tc.ranked)
		for _, want := range tc.says {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("ranked %v: the error is %v, want %q", tc.ranked, err, want)
			}
		}
	}
	if err := CheckCommand([]string{"python", "train.py"}, 4, true); err != nil {
		t.Error(err)
	}
}
