package health

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/procfs"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
)

// trustedUsers are the users that may own the job's sockets, for sockets whose processes are not
// visible: the job's user; root, because its container engine may forward a port; the user's
// subordinate ids, as in a rootless container; and the users of processes that the job has started,
// for example by sudo.
type trustedUsers struct {
	ownUser     int
	subordinate [][2]int // the first id of a range, and their number
	// overflowUser is the id by which the kernel shows every user without an id in this user
	// namespace, including root; -1 outside of user namespaces, where all users have one. It is never
	// trusted, even if this process has it.
	overflowUser    int
	descendantUsers func() []int // users of the processes that this one and its children have started
}

// currentTrustedUsers are the users that this process trusts.
var currentTrustedUsers = sync.OnceValue(func() trustedUsers { return trustedUsersIn("/", os.Geteuid()) })

// trustedUsersIn returns the users that a process of user self trusts, according to the files below
// root.
func trustedUsersIn(root string, self int) trustedUsers {
	users := trustedUsers{ownUser: self, overflowUser: signal.OverflowUser(root), descendantUsers: descendantUserIDs}
	names := accountNames(root, self)
	if names == nil { // a user of a directory service
		names = append(names, os.Getenv("USER"))
	}
	names = append(names, strconv.Itoa(self))
	ranges, _ := os.ReadFile(filepath.Join(root, "etc/subuid"))
	for line := range strings.Lines(string(ranges)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) != 3 || !slices.Contains(names, fields[0]) {
			continue
		}
		first, err := strconv.Atoi(fields[1])
		count, countErr := strconv.Atoi(fields[2])
		if err == nil && countErr == nil {
			users.subordinate = append(users.subordinate, [2]int{first, count})
		}
	}
	return users
}

// descendantUserIDs returns the effective users of this process's descendants.
func descendantUserIDs() (users []int) {
	for _, one := range process.ProcessTree(os.Getpid()) {
		found, err := procfs.NewProc(one.PID)
		if err != nil {
			continue // it has ended
		}
		if status, err := found.NewStatus(); err == nil {
			users = append(users, int(status.UIDs[1]))
		}
	}
	return users
}

func (t trustedUsers) includes(user int) bool {
	if user == t.overflowUser {
		return false
	}
	inRange := func(r [2]int) bool { return r[0] <= user && user-r[0] < r[1] }
	return user == t.ownUser || user == 0 || slices.ContainsFunc(t.subordinate, inRange) ||
		slices.Contains(t.descendantUsers(), user)
}

// BelongsTo reports whether the socket belongs to a child: one of the processes that have it does,
// or, if none is visible, its user is trusted.
func (l ListeningSocket) BelongsTo(ownsProcess func(pid int) bool) bool {
	if l.PID == 0 {
		return currentTrustedUsers().includes(l.userID)
	}
	return slices.ContainsFunc(l.pids, ownsProcess)
}

// StrangerError says that another user, who is not trusted, listens on a port of a service.
type StrangerError struct{ text string }

// Error implements error.
func (e *StrangerError) Error() string { return e.text }

// IsStrangers reports whether the socket belongs to a user who is not trusted.
func (l ListeningSocket) IsStrangers() bool { return !currentTrustedUsers().includes(l.userID) }

// IsBeside reports whether the socket belongs to a user who is not trusted, and leaves other addresses
// of its port to others.
func (l ListeningSocket) IsBeside() bool {
	return l.Address != "0.0.0.0" && l.Address != "::" && l.IsStrangers()
}

func (t trustedUsers) refusalError(l ListeningSocket) error {
	what := fmt.Sprintf(", and the job runs as user %s: give the service another port", userName(t.ownUser))
	if l.userID == t.overflowUser {
		what = "; in this user namespace (a container) that may be any user, including root: " +
			"run the service in the namespace of bringupd, or give it another port"
	}
	return &StrangerError{fmt.Sprintf("cannot trust the service's port: %s%s", l, what)}
}
