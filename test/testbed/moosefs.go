package testbed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// startMooseFS starts MooseFS on ctl, mounts it there and on the host, and returns when it accepts
// data.
func (b *Bed) startMooseFS(ctx context.Context) error {
	for _, name := range []string{"master", "chunkserver", "chunks"} {
		if err := os.MkdirAll(b.slot.path("moosefs/"+name), 0o755); err != nil {
			return fmt.Errorf("cannot make a folder of the testbed's MooseFS: %v", err)
		}
	}
	if err := b.slot.write(mooseFSFiles(b.slot)); err != nil {
		return err
	}
	// Start the servers in order: a chunkserver that does not find the master waits a second before it
	// tries again.
	for _, name := range []string{"mfsmaster", "mfschunkserver"} {
		server, err := b.serve(name, name, "-f", "-c", b.slot.path("etc/"+name+".cfg"), "start")
		if err != nil {
			return err
		}
		if err := server.says(ctx, "daemon initialized properly"); err != nil {
			return fmt.Errorf("cannot start %s: %v", name, err)
		}
	}
	if err := b.mountOnCtl(ctx); err != nil {
		return err
	}
	// Keep one copy of each file, because there is one chunkserver. By default the master wants two
	// and, for its first ten seconds, blocks writes to a file that lacks one.
	if err := b.ctl.run(ctx, "", "mfssetgoal", "1", b.Share()); err != nil {
		return err
	}
	if err := b.waitRoom(ctx); err != nil {
		return err
	}
	// Create the first chunk now: it takes a hundred times as long as all later ones.
	return b.ctl.run(ctx, "", "sh", "-c", `echo first >"$0" && rm "$0"`, b.slot.path("share/first"))
}

// mooseFSFiles returns the configuration of MooseFS and its empty metadata. It sets no ports,
// because the testbed has its own network namespace. It disables the default nice level and the
// protection from the kernel's OOM killer, because the servers and all their clients share one
// machine.
func mooseFSFiles(s *slot) map[string]string {
	server := func(data string, lines ...string) string {
		return joinLines(append([]string{"WORKING_USER = root", "WORKING_GROUP = root",
			"NICE_LEVEL = 0",
			"DISABLE_OOM_KILLER = 0", "DATA_PATH = " + s.path(data)}, lines...))
	}
	return map[string]string{
		"moosefs/master/metadata.mfs": "MFSM NEW",
		"etc/mfsexports.cfg":          "* / rw,alldirs,admin,maproot=0:0\n",
		"etc/mfstopology.cfg":         "",
		"etc/mfshdd.cfg":              s.path("moosefs/chunks") + "\n",
		"etc/mfsmaster.cfg": server("moosefs/master",
			"EXPORTS_FILENAME = "+s.path("etc/mfsexports.cfg"),
			"TOPOLOGY_FILENAME = "+s.path("etc/mfstopology.cfg"),
			"MATOML_LISTEN_HOST = "+s.ctlAddress(),
			"MATOCS_LISTEN_HOST = "+s.ctlAddress(),
			"MATOCL_LISTEN_HOST = "+s.ctlAddress()),
		"etc/mfschunkserver.cfg": server("moosefs/chunkserver",
			"HDD_CONF_FILENAME = "+s.path("etc/mfshdd.cfg"),
			"MASTER_HOST = "+s.ctlAddress(),
			"MASTER_RECONNECTION_DELAY = 1",
			"CSSERV_LISTEN_HOST = "+s.ctlAddress()),
		"etc/mfsmount.cfg": joinLines([]string{"mfsmaster=" + s.ctlAddress(), "mfsnice=0",
			"mfsallowoomkiller"}),
	}
}

// uncached are mfsmount's options for the mount on ctl and on the host, where tests read what a job
// has just written.
const uncached = "mfsattrcacheto=0,mfsentrycacheto=0,mfsdirentrycacheto=0,mfsnegentrycacheto=0,mfscachemode=NEVER"

// mfsmount returns the program that mounts MooseFS on a place, with the given options.
func (b *Bed) mfsmount(p *place, options ...string) *exec.Cmd {
	argv := []string{"mfsmount", "-f", "-c", b.slot.path("etc/mfsmount.cfg"), b.Share()}
	for _, option := range options {
		argv = append(argv, "-o", option)
	}
	return p.service(nil, argv...)
}

// mountOnCtl mounts MooseFS on ctl, and attaches a copy of that mount to the host's folder.
func (b *Bed) mountOnCtl(ctx context.Context) error {
	mount, err := startDaemon(b.mfsmount(b.ctl, uncached), b.slot.path("log/mount-ctl.log"))
	if err != nil {
		return err
	}
	b.servers = append(b.servers, mount)
	if err := b.waitMounted(ctx, b.ctl, mount); err != nil {
		return err
	}
	return b.ctl.showOnHost(b.Share())
}

// waitRoom waits until the master knows the chunkserver's disk: an earlier write would block for
// seconds.
func (b *Bed) waitRoom(ctx context.Context) error {
	return poll(ctx, func() (bool, error) {
		out, err := b.ctl.command(ctx, "/", nil,
			[]string{"stat", "--file-system", "--format=%b", b.Share()}).Output()
		if err != nil {
			return false, fmt.Errorf("cannot ask for the size of the share: %v", err)
		}
		return strings.TrimSpace(string(out)) != "0", nil
	})
}

// showOnHost attaches a copy of the place's mount at the path to the same path of the host, until
// slot.release unmounts it. The process that serves it stays in the place: the testbed runs none
// outside its places.
func (p *place) showOnHost(path string) error {
	mount, err := p.copyMount(path)
	if err != nil {
		return fmt.Errorf("cannot copy the mount %s of %s: %v", path, p.name, err)
	}
	defer unix.Close(mount)
	if err := unix.MoveMount(mount, "", unix.AT_FDCWD, path,
		unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("cannot mount %s on the host: %v", path, err)
	}
	return nil
}

// copyMount returns a descriptor of a detached copy of the place's mount at the path.
func (p *place) copyMount(path string) (mount int, err error) {
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", p.holder.pid()))
	if err != nil {
		return 0, err
	}
	defer namespace.Close()
	onDyingThread(func() {
		// A thread that shares its working directory with others cannot change its mount namespace.
		if err = unix.Unshare(unix.CLONE_FS); err != nil {
			return
		}
		if err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS); err != nil {
			return
		}
		mount, err = unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	})
	return mount, err
}

// onDyingThread runs f, which may change the namespaces of its thread, on a thread that ends after
// f.
func onDyingThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked, so the runtime ends the thread
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		// The main thread does not end, and other processes take its namespaces for those of the whole
		// process. So use another thread.
		onDyingThread(f) // not the main thread, which is locked here
		runtime.UnlockOSThread()
	}()
	<-done
}
