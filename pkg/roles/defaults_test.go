package roles_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
)

// TestDefaults verifies the documented values of the keys that a role file omits.
func TestDefaults(t *testing.T) {
	var list yaml.Node
	text := "- {name: server, nodes: 1, command: serve}\n" +
		"- {name: setup, nodes: all, oneshot: true, command: prepare}\n"
	if err := yaml.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	defs, err := rolefile.Parse(list.Content[0])
	if err != nil {
		t.Fatal(err)
	}
	for at, timeout := range []time.Duration{0, 10 * time.Minute} {
		want := defs[at]
		want.Timeout = timeout
		want.Ready = roles.ReadyProbe{Timeout: 30 * time.Minute}
		want.Alive = roles.AliveProbe{After: time.Minute}
		want.Restarts = roles.RestartPolicy{
			Window: 10 * time.Minute, MinBackoff: time.Second, MaxBackoff: 30 * time.Second,
		}
		want.Required = roles.Requirement{Start: roles.QuorumAll, Run: roles.QuorumAll}
		want.Stop = roles.StopPolicy{Grace: 10 * time.Second, Signal: "TERM"}
		if diff := cmp.Diff(want, defs[at]); diff != "" {
			t.Errorf("%s: %s", want.Name, diff)
		}
	}
}
