package mpidetect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAlone(t *testing.T) {
	open4 := Library{Kind: OpenMPI, Version: "4.1.4"}
	open5 := Library{Kind: OpenMPI, Version: "5.0.11"}
	mpich5 := Library{Kind: MPICH, Version: "5.0.2"}
	intel := Library{Kind: Intel, Version: "2021.18.1"}
	given := map[string]string{"PMI_FD": "3", "PMI_RANK": "1", "PMIX_RANK": "1", "PMIX_SERVER_TMPDIR": "/tmp/bu-1/pmix", "JSM_JSRUN_PORT": "1", "I_MPI_PMI": "pmi1", "PMIX_MCA_psec": "native"}
	all := func(more ...string) []string {
		for name, value := range given {
			more = append(more, name+"="+value)
		}
		return more
	}
	without := func(name string) (left []string) {
		for _, entry := range all() {
			if !strings.HasPrefix(entry, name+"=") {
				left = append(left, entry)
			}
		}
		return left
	}
	one := []string{"/lib/libmpi.so.40"}
	for _, tc := range []struct {
		name   string
		facts  RankMPI
		reason string // a part of it
		fix    string // a part of it
	}{
		{"nothing is wrong", RankMPI{MPI: open5, LoadedMPI: LoadedMPI{MPIs: one, Environ: all()}}, "no known cause was found", "MPI_Init"},
		{"two libraries", RankMPI{MPI: open5, LoadedMPI: LoadedMPI{MPIs: []string{"/a/libmpi.so.40", "/b/libmpi.so.12"}, Environ: all()}},
			"/a/libmpi.so.40 and /b/libmpi.so.12", "mpi4py"},
		{"sudo before MPICH", RankMPI{MPI: mpich5, LoadedMPI: LoadedMPI{MPIs: one, Environ: without("PMI_FD")}}, "PMI_FD", "make that program keep PMI_*"},
		{"sudo before Open MPI", RankMPI{MPI: open5, LoadedMPI: LoadedMPI{MPIs: one, Environ: without("PMIX_RANK")}}, "PMIX_RANK", "PMIX_*"},
		{"what Open MPI does not go by", RankMPI{MPI: open5, LoadedMPI: LoadedMPI{MPIs: one, Environ: without("PMI_FD")}}, "no known cause", ""},
		{"a closed descriptor", RankMPI{MPI: intel, LoadedMPI: LoadedMPI{MPIs: one, Environ: all(), PMIDescriptorClosed: true}}, "closed the file descriptor", "keep it"},
		{"a closed descriptor that Open MPI does not go by", RankMPI{MPI: open5, LoadedMPI: LoadedMPI{MPIs: one, Environ: all(), PMIDescriptorClosed: true}}, "no known cause", ""},
		{"Intel's PMI is another", RankMPI{MPI: intel, LoadedMPI: LoadedMPI{MPIs: one, Environ: append(without("I_MPI_PMI"), "I_MPI_PMI=pmi2")}}, "I_MPI_PMI=pmi2", "unset I_MPI_PMI"},
		{"Intel's PMI does not matter to MPICH", RankMPI{MPI: mpich5, LoadedMPI: LoadedMPI{MPIs: one, Environ: append(without("I_MPI_PMI"), "I_MPI_PMI=pmi2")}}, "no known cause", ""},
		{"PMIx's security is another", RankMPI{MPI: open5, LoadedMPI: LoadedMPI{MPIs: one, Environ: append(without("PMIX_MCA_psec"), "PMIX_MCA_psec=munge")}}, "PMIX_MCA_psec=munge", "unset"},
		{"Open MPI is told that it is alone", RankMPI{MPI: open4, LoadedMPI: LoadedMPI{MPIs: one, Environ: all("OMPI_MCA_ess=singleton")}}, "OMPI_MCA_ess=singleton", "unset"},
		{"Open MPI is told what not to use", RankMPI{MPI: open4, LoadedMPI: LoadedMPI{MPIs: one, Environ: all("OMPI_MCA_pmix=^s1,s2")}}, "no known cause", ""},
		{"a container without the directory", RankMPI{MPI: open5, LoadedMPI: LoadedMPI{MPIs: one, Environ: all(), InOtherNamespace: true, PMIxDirHidden: true}}, "/tmp/bu-1/pmix, does not exist", "--bind"},
		{"a container with a network of its own", RankMPI{MPI: open5, LoadedMPI: LoadedMPI{MPIs: one, Environ: all(), InOtherNamespace: true}}, "127.0.0.1", "--network=host"},
		{"a container does not keep a descriptor", RankMPI{MPI: intel, LoadedMPI: LoadedMPI{MPIs: one, Environ: all(), InOtherNamespace: true, PMIxDirHidden: true}}, "no known cause", ""},
		{"no libpmix", RankMPI{MPI: open5, NoPMIxReason: "cannot find a libpmix.so.2", LoadedMPI: LoadedMPI{MPIs: one, Environ: all()}}, "cannot find a libpmix.so.2", "--pmix"},
		{"PMIx is off", RankMPI{MPI: open5, NoPMIxReason: PMIxDisabled, LoadedMPI: LoadedMPI{MPIs: one, Environ: all()}}, "--pmix=off was given", "leave out --pmix=off"},
		{"no libpmix is nothing to MPICH", RankMPI{MPI: mpich5, NoPMIxReason: "cannot find a libpmix.so.2", LoadedMPI: LoadedMPI{MPIs: one, Environ: all()}}, "no known cause", ""},
		{"Open MPI 4 without a hint", RankMPI{MPI: open4, LoadedMPI: LoadedMPI{MPIs: one, Environ: without("JSM_JSRUN_PORT")}}, "did not recognise its launcher", "JSM_JSRUN_PORT"},
		{"a launcher's own library", RankMPI{MPI: Library{Kind: Cray}, LoadedMPI: LoadedMPI{MPIs: one, PMIs: []string{"/opt/cray/libpmi2.so.0"}, Environ: all()}}, "/opt/cray/libpmi2.so.0", "built-in PMI-1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.facts.GivenEnv = given
			reason, fix := ExplainSingleton(tc.facts)
			if !strings.Contains(reason, tc.reason) || !strings.Contains(fix, tc.fix) {
				t.Errorf("%q, %q", reason, fix)
			}
		})
	}
}

// TestLook inspects a process tree in the format of /proc.
func TestLook(t *testing.T) {
	root := t.TempDir()
	at := func(path ...string) string { return filepath.Join(append([]string{root}, path...)...) }
	link := func(to, path string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
	}
	for name, ns := range map[string]string{"self": "1", "7": "2"} {
		link("mnt:["+ns+"]", at(name, "ns/mnt"))
		link("net:[1]", at(name, "ns/net"))
	}
	write(t, at("5/maps"), "7f00-7f01 r-xp 00000000 00:1 1 /usr/bin/bash\n")
	write(t, at("5/task/5/children"), "6 7 ")
	write(t, at("6/maps"), "7f00-7f01 r-xp 00000000 00:1 1 /usr/lib/libmpi_cxx.so.40\n")
	write(t, at("7/maps"), `7f00-7f01 r--p 00000000 00:1 1 /opt/a b/libmpi.so.40.30.4
7f01-7f02 r-xp 00000000 00:1 1 /opt/a b/libmpi.so.40.30.4
7f02-7f03 rw-p 00000000 00:0 0
7f03-7f04 r-xp 00000000 00:1 1 /usr/lib/libpmix.so.2.6.2 (deleted)
7f05-7f06 rw-p 00000000 00:0 0 [stack]
`)
	write(t, at("7/environ"), "PMI_FD=3\x00PMIX_SERVER_TMPDIR=/tmp/x\x00")
	link("/dev/null", at("7/fd/3"))
	want := &LoadedMPI{
		PID: 7, MPIs: []string{"/opt/a b/libmpi.so.40.30.4"}, PMIs: []string{"/usr/lib/libpmix.so.2.6.2"},
		Environ:          []string{"PMI_FD=3", "PMIX_SERVER_TMPDIR=/tmp/x"},
		InOtherNamespace: true, PMIxDirHidden: true, PMIDescriptorClosed: true,
	}
	if diff := cmp.Diff(want, procfs(root).findLoaded(5)); diff != "" {
		t.Error(diff)
	}
	if found := procfs(root).findLoaded(6); found != nil {
		t.Errorf("a process with the bindings for C++ alone: %+v", found)
	}
	if found := procfs(root).findLoaded(99); found != nil {
		t.Errorf("a process that has ended: %+v", found)
	}
}
