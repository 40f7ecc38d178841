package signal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/test/users"
)

// TestExposure verifies that a directory above the log directory in which other users can rename
// entries is reported if file descriptors do not protect against this.
func TestExposure(t *testing.T) {
	users.Need(t)
	for _, tc := range []struct {
		name        string
		mode        os.FileMode
		owner       int
		seen, mend  string
		grandparent os.FileMode
	}{
		{"the user's own", 0o755, 0, "", "", 0o755},
		{"a project's", 0o775 | os.ModeSetgid, 0,
			"other users can rename what is in DIR/team (mode 0775", "chmod +t DIR/team", 0o755},
		{"a project's, sticky", 0o775 | os.ModeSetgid | os.ModeSticky, 0, "", "", 0o755},
		{"anybody's", 0o777, 0, "other users can rename what is in DIR/team", "chmod +t DIR/team", 0o755},
		{"another user's", 0o755, 64102, "uid 64102, who owns DIR/team", "belong to you or root", 0o755},
		{"a parent of its parent is anybody's", 0o755, 0, "other users can rename what is in DIR (",
			"chmod +t DIR ", 0o777},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			team := filepath.Join(dir, "team")
			for _, err := range []error{os.Mkdir(team, 0o700), os.Chown(team, tc.owner, 0),
				os.Chmod(team, tc.mode), os.Chmod(dir, tc.grandparent)} {
				must(t, err)
			}
			found := ExposureAbove(filepath.Join(team, "logs"))
			plain := strings.NewReplacer(dir, "DIR")
			seen, mend := plain.Replace(found.Reason), plain.Replace(found.Remedy)
			if (seen == "") != (tc.seen == "") || !strings.HasPrefix(seen, tc.seen) ||
				!strings.Contains(mend, tc.mend) {
				t.Errorf("%q: %q", seen, mend)
			}
			// The kernel's own file systems are accessed through descriptors.
			if found := ExposureOf(filepath.Join(team, "logs")); found != (Exposure{}) {
				t.Errorf("%+v", found)
			}
		})
	}
}
