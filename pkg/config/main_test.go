package config

import (
	"fmt"
	"testing"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

func testIdentity(node, size int) launcher.Identity {
	id := launcher.Identity{Launcher: launcher.LauncherLocal, NodeIndex: node, Size: size,
		Host: fmt.Sprintf("n%d", node), Job: "17", Step: "0"}
	for node := range size {
		id.Hosts = append(id.Hosts, fmt.Sprintf("n%d", node))
	}
	return id
}

func probe(t *testing.T, text string) *health.Probe {
	t.Helper()
	p, err := health.ParseProbe(text)
	if err != nil {
		t.Fatal(err)
	}
	return &p
}

func require(t *testing.T, text string) membership.SandboxQuorum {
	t.Helper()
	r, err := membership.ParseSandboxQuorum(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
