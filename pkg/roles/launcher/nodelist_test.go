package launcher

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestExpandNodeList(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want string // names, separated by blanks
	}{
		{"n1", "n1"},
		{"n1,n2", "n1 n2"},
		{"n2,n1,n2", "n2 n1 n2"},
		{"n[0-3,7],gpu-a[01-03]", "n0 n1 n2 n3 n7 gpu-a01 gpu-a02 gpu-a03"},
		{"r[1-2]n[0-3]", "r1n0 r1n1 r1n2 r1n3 r2n0 r2n1 r2n2 r2n3"},
		{"n[1-2][3-4]", "n13 n14 n23 n24"},
		{"n[1-3]-ib", "n1-ib n2-ib n3-ib"},
		{"a[1-2].x.example,b_c", "a1.x.example a2.x.example b_c"},
		{"n[09-11]", "n09 n10 n11"},
		{"n[9-11]", "n9 n10 n11"},
		{"n[098-101]", "n098 n099 n100 n101"},
		{"n[1-010]", "n1 n2 n3 n4 n5 n6 n7 n8 n9 n10"},
		{"n[01-3]", "n01 n02 n03"},
		{"n[5]", "n5"},
		{"[1-2]", "1 2"},
		{"r[1,3]c[0-1]x", "r1c0x r1c1x r3c0x r3c1x"},
		{"n[999999999999999998-999999999999999999]", "n999999999999999998 n999999999999999999"},
	} {
		t.Run(tc.in, func(t *testing.T) {
			got, err := ExpandNodeList(tc.in, 0)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("got %q, want %q", strings.Join(got, " "), tc.want)
			}
		})
	}
}

func TestExpandNodeListErrors(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		limit    int
		says     string
	}{
		{"empty", "", 0, `at character 1: ""`},
		{"comma first", ",n1", 0, "at character 1"},
		{"comma last", "n1,", 0, "at character 4"},
		{"two commas", "n1,,n2", 0, "at character 4"},
		{"open", "a,n[1-2", 0, `at character 3: "n[1-2"`},
		{"open range", "n[1-", 0, "n[0-3,7]"},
		{"empty bracket", "n[]", 0, "n[0-3,7]"},
		{"letter", "n[a]", 0, "n[0-3,7]"},
		{"comma in bracket", "n[1,]", 0, "n[0-3,7]"},
		{"backwards", "n[3-1]", 0, "range 3-1 runs backwards"},
		{"three ends", "n[1-2-3]", 0, "n[0-3,7]"},
		{"closed twice", "n[1-2]]", 0, "n[0-3,7]"},
		{"bracket in bracket", "n[1[2]]", 0, "n[0-3,7]"},
		{"blank", "n1 n2", 0, `"n1 n2"`},
		{"dash first", "-n1", 0, "at character 1"},
		{"dot first", "n1,.n2", 0, "at character 4"},
		{"not ASCII", "nö", 0, "n[0-3,7]"},
		{"long number", "n[1234567890123456789]", 0, "n[0-3,7]"},
		{"too many in a range", "n[0-65536]", 0, "more than 65536"},
		{"too many of several", "n[0-65535],m", 0, "more than 65536"},
		{"too many as a product", "n[0-999]n[0-999]", 0, "more than 65536"},
		{"beyond 64 bits", strings.Repeat("[0-999999999999999999]", 8), 0, "more than 65536"},
		{"above the limit given", "n[1-3]", 2, "more than 2"},
		{"long name", strings.Repeat("n", 254), 0, "254 bytes"},
		{"long name by digits", strings.Repeat("n", 250) + "[1-1000]", 0, "254 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ExpandNodeList(tc.in, tc.limit)
			if err == nil {
				t.Fatalf("got %q, want an error", got)
			}
			if !strings.Contains(err.Error(), tc.says) || !strings.HasPrefix(err.Error(), "cannot read node list") {
				t.Errorf("%q is missing in: %v", tc.says, err)
			}
		})
	}
	if got, err := ExpandNodeList("n[0-65535]", 0); err != nil || len(got) != 65536 {
		t.Errorf("the most names are refused: %d, %v", len(got), err)
	}
}

func TestCompactNodeList(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"none", "", ""},
		{"one", "n1", "n1"},
		{"without numbers", "head login", "head,login"},
		{"range", "n3 n1 n2 n7", "n[1-3,7]"},
		{"repeats", "n1 n1 n2", "n[1-2]"},
		{"two of them", "n1 n3", "n[1,3]"},
		{"numeric order", "n10 n9 n2 n1", "n[1-2,9-10]"},
		{"padding", "a08 a09 a10 a11", "a[08-11]"},
		{"padding outgrown", "a99 a100 a098", "a[098,99-100]"},
		{"padded and not", "n3 n03 n2", "n[2-3,03]"},
		{"several racks", "r1n1 r1n2 r2n1", "r1n[1-2],r2n1"},
		{"suffix", "n1-ib n2-ib n3", "n3,n[1-2]-ib"},
		{"domain", "n1.c2.example n2.c2.example", "n[1-2].c2.example"},
		{"number in the domain alone", "a.c2 b.c2", "a.c2,b.c2"},
		{"zero", "n0 n00 n1", "n[0,00,1]"},
		{"long number", "n1234567890123456789 n1234567890123456790", "n1[234567890123456789-234567890123456790]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := CompactNodeList(strings.Fields(tc.in))
			if got != tc.want {
				t.Fatalf("got %q, want %q", got, tc.want)
			}
			checkRoundTrip(t, strings.Fields(tc.in))
		})
	}
}

// checkRoundTrip compacts shuffled hosts and expands them again.
func checkRoundTrip(t *testing.T, hosts []string) {
	t.Helper()
	if len(hosts) == 0 {
		return
	}
	hosts = slices.Clone(hosts)
	rand.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
	list := CompactNodeList(hosts)
	back, err := ExpandNodeList(list, 0)
	if err != nil {
		t.Fatalf("%q does not expand: %v", list, err)
	}
	slices.Sort(back)
	slices.Sort(hosts)
	if hosts = slices.Compact(hosts); !slices.Equal(back, hosts) {
		t.Errorf("%q came back as %q by way of %q", hosts, back, list)
	}
}

func TestHostList(t *testing.T) {
	for _, test := range []struct {
		name  string
		hosts []string
		want  string
	}{
		{"not told", nil, ""},
		{"in order", []string{"n1", "n2", "n3"}, "n[1-3]"},
		{"in another order", []string{"n3", "n1", "n2"}, "n3,n1,n2"},
		{"one host twice", []string{"n1", "n1"}, "n1,n1"},
		{"one is not known", []string{"n1", ""}, ""},
		{"too long", slices.Repeat([]string{strings.Repeat("b", 200), strings.Repeat("a", 200)}, 400), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := HostList(test.hosts); got != test.want {
				t.Errorf("it is %.100q, want %q", got, test.want)
			}
		})
	}
}
