package rolefile

import "testing"

func TestParseFile(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"roles and settings", "log-dir: /tmp\nspares: 1\nroles:\n- {name: a, nodes: 1, command: c}\n", ""},
		{"nothing", "# nothing\n", "cannot use job.yaml: it is empty; give a list of roles"},
		{"no YAML", "roles: [\n", "cannot read job.yaml: yaml: line 1: did not find expected node content"},
		{"two documents", "roles: []\n---\na: 1\n", "cannot read job.yaml: give one document, without a second one after ---"},
		{"a list", "- a\n", "cannot use job.yaml:1: the file: a mapping is expected, such as roles: […]"},
		{"a wrong key", "\nrole: []\n", `cannot use job.yaml:2: there is no key "role"; did you mean roles?`},
		{"a wrong setting", "log-dri: x\n", `cannot use job.yaml:1: there is no key "log-dri"; did you mean log-dir?`},
		{"settings alone", "log-dir: /tmp\n", "cannot use job.yaml:1: there is no key roles: give a list of roles"},
		{"several mistakes", "spares: x\nroles:\n- {name: a, nodes: 1}\n", "cannot use job.yaml:1: spares is \"x\": give a whole number from 0 to 1000000\n" +
			"cannot use job.yaml:3: role a: command is missing: give the shell text that each process runs, or framework: ray or dask"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file, err := ParseFile("job.yaml", []byte(tc.text), []string{"log-dir"})
			switch {
			case tc.want != "":
				if err == nil || err.Error() != tc.want {
					t.Errorf("got %v\nwant %s", err, tc.want)
				}
			case err != nil || len(file.Roles) != 1 || file.Spares[0] != 1:
				t.Errorf("got %+v, %v", file, err)
			}
		})
	}
}
