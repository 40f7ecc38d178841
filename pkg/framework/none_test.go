package framework

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/health"
)

func TestNone(t *testing.T) {
	probe, err := health.ParseProbe("tcp:8080")
	if err != nil {
		t.Fatal(err)
	}
	remote, err := health.ParseProbe("tcp://198.51.100.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name         string
		none         None
		rank         int
		serves       bool
		head, worker []string
		headPort     int
	}{
		{"nothing", None{}, 0, false, nil, nil, 0},
		{"a head", None{HeadCommand: "h 1"}, 0, true, []string{"/bin/sh", "-c", "h 1"}, nil, 0},
		{"workers", None{WorkerCommand: "w"}, 1, true, nil, []string{"/bin/sh", "-c", "w"}, 0},
		{"the head's node works too", None{HeadCommand: "h", WorkerCommand: "w"}, 0, true,
			[]string{"/bin/sh", "-c", "h"}, []string{"/bin/sh", "-c", "w"}, 0},
		{"a head without work", None{HeadCommand: "h", WorkerCommand: "w", DedicatedHead: true}, 0,
			true, []string{"/bin/sh", "-c", "h"}, nil, 0},
		{"the workers beside it", None{HeadCommand: "h", WorkerCommand: "w", DedicatedHead: true},
			1, true, []string{"/bin/sh", "-c", "h"}, []string{"/bin/sh", "-c", "w"}, 0},
		{"a port of this node", None{HeadCommand: "h", HeadReady: &probe}, 0, true,
			[]string{"/bin/sh", "-c", "h"}, nil, 8080},
		{"a port of another", None{HeadCommand: "h", HeadReady: &remote}, 0, true,
			[]string{"/bin/sh", "-c", "h"}, nil, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := Node{TeamIndex: tc.rank, Size: 2, Address: "10.0.0.1", Environ: []string{"A=B"}}
			if got := tc.none.HasServices(); got != tc.serves {
				t.Errorf("it serves: %v", got)
			}
			head, endpoint, err := tc.none.HeadService(node)
			if err != nil || endpoint.Address != "10.0.0.1" || endpoint.Env != nil {
				t.Errorf("the endpoint is %+v: %v", endpoint, err)
			}
			check(t, "head", head, tc.head, tc.headPort, tc.none.HeadReady != nil)
			worker, err := tc.none.WorkerService(node, endpoint)
			if err != nil {
				t.Error(err)
			}
			check(t, "worker", worker, tc.worker, 0, false)
		})
	}
}

func check(t *testing.T, name string, service *Service, argv []string, port int, probed bool) {
	t.Helper()
	if argv == nil {
		if service != nil {
			t.Errorf("there is a %s: %+v", name, service)
		}
		return
	}
	if service == nil {
		t.Fatalf("there is no %s", name)
	}
	env := []string{"A=B"}
	if name == "worker" {
		env = append(env, HeadAddressVariable+"=10.0.0.1")
	}
	if service.Name != name || !slices.Equal(service.Argv, argv) || service.ReadyPort != port ||
		!slices.Equal(service.Env, env) {
		t.Errorf("the %s is %+v", name, service)
	}
	var ports []Port
	if port > 0 {
		ports = []Port{{Name: name, Number: port}}
	}
	if diff := cmp.Diff(ports, service.Ports); diff != "" {
		t.Error(diff)
	}
	if probed != (service.CheckReady != nil) {
		t.Errorf("the %s has a probe: %v", name, !probed)
	}
}
