package pairs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// recorded is what ib_write_bw said between two nodes with ConnectX cards, on a processor whose clock is not fixed
// (perftest 6.x, RoCE; the addresses are others).
const recorded = `---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF          Device         : mlx5_0
 Number of qps   : 1            Transport type : IB
 Connection type : RC           Using SRQ      : OFF
 Link type       : Ethernet
 Data ex. method : Ethernet
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x008a PSN 0xfffb6d RKey 0x238f86 VAddr 0x007dd5a3cfd000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:01
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
Conflicting CPU frequency values detected: 1500.000000 != 3300.016000. CPU Frequency is not max.
 65536      560845           0.00               98.02                0.186950
---------------------------------------------------------------------------------------
`

func TestParse(t *testing.T) {
	const head = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
	for _, tc := range []struct {
		name, output string
		want         float64 // Gb/s
	}{
		{"as recorded", recorded, 98.02},
		{"a short message (perftest's issue 273)", head + " 8          224958464        0.00               0.48   \t\t   7.498617\n", 0.48},
		{"an old one, without the rate of messages", strings.Replace(head, "   MsgRate[Mpps]", "", 1) + " 4194304    10000          394.68             394.52\n", 394.52},
		{"other units", strings.ReplaceAll(recorded, "Gb/sec", "MB/sec"), 0},
		{"it ended before", head, 0},
		{"nothing came", head + " 65536      0           0.00               0.00                0.00\n", 0},
		{"another's words", head + "x y z inf\n65536 1 1 inf\n", 0},
		{"nothing", "", 0},
	} {
		rate, err := parse(tc.output)
		if rate != tc.want/8 || (err == nil) != (tc.want > 0) {
			t.Errorf("%s: %g GB/s, %v", tc.name, rate, err)
		}
	}
}

func TestFindTool(t *testing.T) {
	own := uint32(os.Geteuid())
	folder := func(mode, file os.FileMode) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, Tool), nil, 0o700); err != nil {
			t.Fatal(err)
		}
		for path, mode := range map[string]os.FileMode{filepath.Join(dir, Tool): file, dir: mode} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	well := folder(0o755, 0o755)
	link := t.TempDir()
	if err := os.Symlink(filepath.Join(folder(0o777, 0o755), Tool), filepath.Join(link, Tool)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		folder string
		owner  uint32
		found  bool
	}{
		{"well", well, own, true},
		{"somebody else's", well, own + 1, false},
		{"a folder that all write to", folder(0o777, 0o755), own, false},
		{"a file that all write to", folder(0o755, 0o775), own, false},
		{"a link to where all write to", link, own, false},
		{"nothing there", t.TempDir(), own, false},
		{"no folder", "", own, false},
	} {
		if path := findTool([]string{"/nowhere", tc.folder}, tc.owner); (path != "") != tc.found {
			t.Errorf("%s: found %q", tc.name, path)
		}
	}
}

func TestCommand(t *testing.T) {
	p := Port{Tool: "/usr/bin/ib_write_bw", Device: "mlx5_3", Number: 1}
	const want = "/usr/bin/ib_write_bw -d mlx5_3 -i 1 -p 4711 -F --report_gbits -q 4 -s 1048576 -D 5 -f 1 10.0.0.1"
	if got := strings.Join(p.command("4711", "10.0.0.1", 3*time.Second), " "); got != want {
		t.Errorf("got %s", got)
	}
}
