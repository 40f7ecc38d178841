package ranks

import (
	"context"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

func TestEnviron(t *testing.T) {
	p := NewPlan([]int{2, 2, 2})
	base := strings.Fields(`HOME=/h RANK=7 SLURM_JOB_ID=17 SLURM_STEP_ID=0 SLURM_PROCID=2 SLURM_NTASKS=3 SLURM_LOCALID=0
SLURM_NODEID=2 PET_NNODES=2 HOROVOD_RANK=1 PET_NPROC_PER_NODE=8
RRUN_COORD_DIR=/tmp/rrun_x TORCHELASTIC_RUN_ID=none OMPI_MCA_btl=self,tcp PMI_FD=9 PMIX_RANK=2
OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_LOCAL_RANK=0 SLURM_PMI_KVS_NO_DUP_KEYS=yes TORCHELASTIC_USE_AGENT_STORE=True`)
	want := strings.Fields(`HOME=/h SLURM_JOB_ID=17 SLURM_STEP_ID=0 SLURM_NODEID=2 PET_NPROC_PER_NODE=8
OMPI_MCA_btl=self,tcp
BRINGUPD_LOCAL_RANK=1 BRINGUPD_LOCAL_RANKS=2 BRINGUPD_RANK=5 BRINGUPD_RANKS=6 GROUP_RANK=2 GROUP_WORLD_SIZE=3
JAX_COORDINATOR_ADDRESS=192.0.2.1:31234 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=192.0.2.1 MASTER_PORT=31234
MV2_COMM_WORLD_LOCAL_RANK=1 MV2_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2
PALS_LOCAL_RANKID=1 RANK=5 ROLE_NAME=default ROLE_RANK=5 ROLE_WORLD_SIZE=6 SLURM_GTIDS=4,5 SLURM_LOCALID=1
SLURM_NPROCS=6 SLURM_NTASKS=6 SLURM_NTASKS_PER_NODE=2 SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=6
SLURM_STEP_TASKS_PER_NODE=2(x3) SLURM_TASKS_PER_NODE=2(x3) TORCHELASTIC_MAX_RESTARTS=5 TORCHELASTIC_RESTART_COUNT=2
TORCHELASTIC_RUN_ID=17.0 WORLD_SIZE=6`)
	got := RankEnviron(base, p, p.RanksOn(2)[1],
		Master{Address: "192.0.2.1", Port: 31234, RunName: "17.0", RestartCount: 2, MaxRestarts: 5})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestEnvironPrecedence(t *testing.T) {
	p := NewPlan([]int{2})
	base := []string{"A=launch", "B=launch", "MASTER_PORT=29500", "CUDA_VISIBLE_DEVICES=0,1,2,3"}
	env := launcher.EnvironmentOf(RankEnviron(base, p, p.RanksOn(0)[1], Master{Address: "2001:db8::1", Port: 4000},
		map[string]string{"CUDA_VISIBLE_DEVICES": "2,3", "B": "binding"},
		map[string]string{"B": "user", "GROUP_RANK": "", "MASTER_ADDR": "n7"}))
	for name, want := range map[string]string{
		"A": "launch", "B": "user", "MASTER_PORT": "4000", "MASTER_ADDR": "n7",
		"CUDA_VISIBLE_DEVICES": "2,3", "JAX_LOCAL_DEVICE_IDS": "0,1",
		"JAX_COORDINATOR_ADDRESS": "[2001:db8::1]:4000",
	} {
		if got, _ := env(name); got != want {
			t.Errorf("%s is %q, not %q", name, got, want)
		}
	}
	if value, there := env("GROUP_RANK"); there {
		t.Errorf("what the user has taken away is there: %q", value)
	}
}

// TestHoldPort verifies that the kernel assigns the held port to no other socket, but to a server
// that requests it.
func TestHoldPort(t *testing.T) {
	port, release, err := HoldPort()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	for range 2000 {
		l, err := net.Listen("tcp4", "0.0.0.0:0")
		if err != nil {
			t.Fatal(err)
		}
		given := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		if given == port {
			t.Fatalf("port %d was given to somebody else", port)
		}
	}
	// Go's listeners set SO_REUSEADDR, as torch's store does.
	server, err := net.Listen("tcp4", at)
	if err != nil {
		t.Fatalf("a server that wants the port can't have it: %v", err)
	}
	defer server.Close()
	if conn, err := net.Dial("tcp4", at); err != nil {
		t.Errorf("nobody reaches the server: %v", err)
	} else {
		_ = conn.Close()
	}
	bare := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		_ = raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET,
				syscall.SO_REUSEADDR, 0)
		})
		return err
	}}
	if l, err := bare.Listen(context.Background(), "tcp4", at); err == nil {
		_ = l.Close()
		t.Error("a second server has the port, too")
	}
}
