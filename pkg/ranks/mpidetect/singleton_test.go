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
	given := map[string]string{"PMI_FD": "3", "PMI_RANK": "1", "PMIX_RANK": "1", "PMIX_SERVER_TMPDIR": "/tmp/bu-1/pmix",
		"JSM_JSRUN_PORT": "1", "I_MPI_PMI": "pmi1", "PMIX_MCA_psec": "native"}
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
	// Changes of the facts.
	closed := func(f *RankMPI) { f.PMIDescriptorClosed = true }
	inContainer := func(f *RankMPI) { f.InOtherNamespace, f.PMIxDirHidden = true, true }
	ownNetwork := func(f *RankMPI) { f.InOtherNamespace = true }
	unserved := func(reason string) func(f *RankMPI) { return func(f *RankMPI) { f.NoPMIxReason = reason } }
	two := func(f *RankMPI) { f.MPIs = []string{"/a/libmpi.so.40", "/b/libmpi.so.12"} }
	others := func(f *RankMPI) { f.PMIs = []string{"/opt/cray/libpmi2.so.0"} }
	for _, tc := range []struct {
		name        string
		mpi         Library
		environ     []string
		change      func(f *RankMPI) // nil: none
		reason, fix string           // parts of them
	}{
		{"nothing is wrong", open5, all(), nil, "no known cause was found", "MPI_Init"},
		{"two libraries", open5, all(), two, "/a/libmpi.so.40 and /b/libmpi.so.12", "mpi4py"},
		{"sudo before MPICH", mpich5, without("PMI_FD"), nil, "PMI_FD", "make that program keep PMI_*"},
		{"sudo before Open MPI", open5, without("PMIX_RANK"), nil, "PMIX_RANK", "PMIX_*"},
		{"what Open MPI does not go by", open5, without("PMI_FD"), nil, "no known cause", ""},
		{"a closed descriptor", intel, all(), closed, "closed the file descriptor", "keep it"},
		{"a closed descriptor that Open MPI does not go by", open5, all(), closed, "no known cause", ""},
		{"Intel's PMI is another", intel, append(without("I_MPI_PMI"), "I_MPI_PMI=pmi2"), nil,
			"I_MPI_PMI=pmi2", "unset I_MPI_PMI"},
		{"Intel's PMI does not matter to MPICH", mpich5, append(without("I_MPI_PMI"), "I_MPI_PMI=pmi2"), nil,
			"no known cause", ""},
		{"PMIx's security is another", open5, append(without("PMIX_MCA_psec"), "PMIX_MCA_psec=munge"), nil,
			"PMIX_MCA_psec=munge", "unset"},
		{"Open MPI is told that it is alone", open4, all("OMPI_MCA_ess=singleton"), nil,
			"OMPI_MCA_ess=singleton", "unset"},
		{"Open MPI is told what not to use", open4, all("OMPI_MCA_pmix=^s1,s2"), nil, "no known cause", ""},
		{"a container without the directory", open5, all(), inContainer,
			"/tmp/bu-1/pmix, does not exist", "--bind"},
		{"a container with a network of its own", open5, all(), ownNetwork, "127.0.0.1", "--network=host"},
		{"a container does not keep a descriptor", intel, all(), inContainer, "no known cause", ""},
		{"no libpmix", open5, all(), unserved("no libpmix.so.2"), "no libpmix.so.2", "--pmix"},
		{"PMIx is off", open5, all(), unserved(PMIxDisabled), "--pmix=off was given", "leave out --pmix=off"},
		{"no libpmix is nothing to MPICH", mpich5, all(), unserved("no libpmix.so.2"), "no known cause", ""},
		{"Open MPI 4 without a hint", open4, without("JSM_JSRUN_PORT"), nil,
			"did not recognise its launcher", "JSM_JSRUN_PORT"},
		{"a launcher's own library", Library{Kind: Cray}, all(), others,
			"/opt/cray/libpmi2.so.0", "built-in PMI-1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			facts := RankMPI{MPI: tc.mpi, GivenEnv: given,
				LoadedMPI: LoadedMPI{MPIs: []string{"/lib/libmpi.so.40"}, Environ: tc.environ}}
			if tc.change != nil {
				tc.change(&facts)
			}
			reason, fix := ExplainSingleton(facts)
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
