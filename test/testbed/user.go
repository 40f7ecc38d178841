package testbed

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strconv"
)

// findUser finds the user who runs the clients of Slurm, if it is not root, and makes the share
// theirs.
func (b *Bed) findUser(context.Context) (err error) {
	if b.cfg.User == "" {
		return nil
	}
	if b.user, err = user.Lookup(b.cfg.User); err != nil {
		return fmt.Errorf("cannot find the user of the testbed: %v", err)
	}
	return b.Own(b.Share())
}

// Own makes a file on the share, as seen by the host, the property of the testbed's user.
func (b *Bed) Own(path string) error {
	if b.user == nil {
		return nil
	}
	uid, _ := strconv.Atoi(b.user.Uid)
	gid, _ := strconv.Atoi(b.user.Gid)
	return os.Lchown(path, uid, gid)
}

// asUser returns the command line that runs argv as the testbed's user.
func (b *Bed) asUser(argv []string) []string {
	if b.user == nil {
		return argv
	}
	return append([]string{"setpriv", "--reuid=" + b.user.Uid, "--regid=" + b.user.Gid, "--init-groups", "--"}, argv...)
}

// userEnv returns the variables of a command that the testbed's user runs.
func (b *Bed) userEnv() []string {
	if b.user == nil {
		return b.Env()
	}
	return append(b.Env(), "HOME="+b.user.HomeDir, "USER="+b.user.Username, "LOGNAME="+b.user.Username)
}

// procOptions returns the options of a /proc that hides the processes of other users, as on many
// sites; empty if root runs the jobs.
func (b *Bed) procOptions() string {
	if b.user == nil {
		return ""
	}
	return "hidepid=invisible"
}

// mountOptions returns further options of the mounts, by which the user can use them.
func (b *Bed) mountOptions() string {
	if b.user == nil {
		return ""
	}
	return ",allow_other,default_permissions"
}
