package ray

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/framework"
)

func flagsOf(t *testing.T, args []string) framework.Arguments {
	t.Helper()
	flags, err := parseFlags(args)
	if err != nil {
		t.Fatal(err)
	}
	return flags
}

func TestRayPorts(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want []framework.Port // nil: refused
	}{
		{
			"a head with the kernel's choice",
			[]string{"--head", "--port=6379", "--ray-client-server-port=40001",
				"--min-worker-port=0", "--max-worker-port=0"},
			[]framework.Port{{Name: "Ray's GCS", Number: 6379}, {Name: "the Ray Client server", Number: 40001}},
		},
		{
			"a head that opens the defaults", []string{"--head", "--port=6379", "--include-dashboard=true"},
			[]framework.Port{{Name: "Ray's GCS", Number: 6379},
				{Name: "the Ray Client server", Number: 10001}, {Name: "Ray's dashboard", Number: 8265}},
		},
		{"a worker", []string{"--address=h:6379"}, []framework.Port{}},
		{
			"a worker with fixed ports", []string{"--node-manager-port=1301",
				"--metrics-export-port", "1309", "--min-worker-port=2000", "--max-worker-port=2999"},
			[]framework.Port{{Name: "Ray's node manager", Number: 1301}, {Name: "Ray's metrics", Number: 1309}},
		},
		{"no number", []string{"--node-manager-port=x"}, nil},
		{"no port", []string{"--node-manager-port=65536"}, nil},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, err := fixedPorts(flagsOf(t, tc.args))
			if (err != nil) != (tc.want == nil) {
				t.Fatalf("got %v, %v", got, err)
			}
			if len(got)+len(tc.want) > 0 && !cmp.Equal(tc.want, got) {
				t.Error(cmp.Diff(tc.want, got))
			}
		})
	}
}

func TestDashboard(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"none by itself", nil, ""},
		{"none is wanted", []string{"--include-dashboard=false", "--dashboard-port=8299"}, ""},
		{"where Ray has it", []string{"--include-dashboard=true"}, "http://127.0.0.1:8265"},
		{"at a port", []string{"--include-dashboard", "true", "--dashboard-port=8299"}, "http://127.0.0.1:8299"},
		{"at every address of the node", []string{"--include-dashboard=1",
			"--dashboard-host=0.0.0.0"}, "http://10.0.0.7:8265"},
		{"at another address", []string{"--include-dashboard=1", "--dashboard-host=fe80::1"}, "http://[fe80::1]:8265"},
		{"at a port of the kernel's choice", []string{"--include-dashboard=1", "--dashboard-port=0"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := testNode(t, 0)
			node.Address = "10.0.0.7"
			_, endpoint, err := Cluster{HeadArgs: tc.args}.HeadService(node)
			if err != nil || endpoint.Dashboard != tc.want {
				t.Errorf("the dashboard is at %q (%v), want %q", endpoint.Dashboard, err, tc.want)
			}
		})
	}
}
