package ray

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
)

// TestVersionsDiffer verifies that both versions are named if a worker's start has failed and the
// head has another one.
func TestVersionsDiffer(t *testing.T) {
	reply, err := proto.Marshal(&InternalKVGetReply{Value: []byte(`{"ray_version": "2.60.0", "python_version": "3.11.2"}`)})
	if err != nil {
		t.Fatal(err)
	}
	head := fakeGCS{replies: map[string][]byte{kvGetMethod: reply}, token: "secret"}.serve(t)
	prefix := t.TempDir()
	program := filepath.Join(prefix, "bin", "ray")
	for _, dir := range []string{"bin", "lib/python3.11/site-packages/ray_tools-1.0.dist-info"} {
		if err := os.MkdirAll(filepath.Join(prefix, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(program, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "ray")
	if err := os.Symlink(program, link); err != nil {
		t.Fatal(err)
	}
	words := func(path, own string) []string {
		return []string{"n1 has Ray " + own + " (" + path + "), and the head, at " + head + ", has Ray 2.60.0: use one version on all nodes"}
	}
	for _, tc := range []struct {
		name, program string
		versions      []string
		token         string
		session       bool
		want          []string
	}{
		{"another one", program, []string{"2.40.0"}, "secret", false, words(program, "2.40.0")},
		{"a link to another one", link, []string{"2.40.0"}, "secret", false, words(link, "2.40.0")},
		{"the same", program, []string{"2.60.0"}, "secret", false, nil},
		{"none", program, nil, "secret", false, nil},
		{"two", program, []string{"2.40.0", "2.60.0"}, "secret", false, nil},
		{"no such program", "/nonexistent/ray", []string{"2.40.0"}, "secret", false, nil},
		{"a head that does not tell", program, []string{"2.40.0"}, "", false, nil},
		{"it has started", program, []string{"2.40.0"}, "secret", true, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, version := range tc.versions {
				dir := filepath.Join(prefix, "lib/python3.11/site-packages/ray-"+version+".dist-info")
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				defer os.Remove(dir)
			}
			temp := t.TempDir()
			if tc.session {
				temp = withLogs(t, "session_1")
			}
			at := readinessCheck{gcsAddress: head, token: tc.token, tempDir: temp, ownNode: expectedNode{Host: "n1"}}
			if got := at.versionLines(tc.program, os.Environ()); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
