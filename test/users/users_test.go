package users

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUsers checks that each user can access its own directory and the project's, but not that of
// the other user.
func TestUsers(t *testing.T) {
	Need(t)
	project := Project(t)
	for _, tc := range []struct{ self, other User }{{Job, Stranger}, {Stranger, Job}} {
		own, closed := tc.self.Dir(t), tc.other.Dir(t)
		for dir, want := range map[string]bool{own: true, project: true, closed: false} {
			name := filepath.Join(dir, "file")
			out, err := tc.self.Command(t.Context(), own, "touch", name).CombinedOutput()
			if (err == nil) != want {
				t.Errorf("user %d: touch %s: %v, %s", tc.self.ID, name, err, out)
			}
			_ = os.Remove(name)
		}
	}
}

// TestPublic checks that both users can execute a public copy.
func TestPublic(t *testing.T) {
	Need(t)
	id, err := exec.LookPath("id")
	if err != nil {
		t.Fatal(err)
	}
	program := Public(t, id)
	for _, u := range []User{Job, Stranger} {
		out, err := u.Command(t.Context(), u.Dir(t), program, "-u").Output()
		if text := strings.TrimSpace(string(out)); err != nil ||
			(text != "64101" && text != "64102") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
