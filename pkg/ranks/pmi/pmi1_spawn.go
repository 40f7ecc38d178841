package pmi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/textutil"
)

// A spawn is the only request with several lines: it has one block for each command.
const (
	spawnStart = "mcmd=spawn"
	blockEnd   = "endcmd"
)

// maxSpawnExcess limits the size of a spawn that is read to its end, as a multiple of the accepted
// size. The rank is disconnected if the spawn is larger.
const maxSpawnExcess = 8

// errSpawnTooLong means that a spawn exceeds the limits. It was read to its end and discarded.
var errSpawnTooLong = fmt.Errorf("a spawn request may have at most %d bytes and %d commands", MaxSpawnSize, MaxCommands)

// readSpawn reads the blocks of a spawn whose first line has been scanned. Each block contains the
// number of blocks. A spawn that exceeds the limits is read to its end and discarded, so that the
// rank can receive an answer.
func readSpawn(lines *bufio.Scanner) (blocks []message, err error) {
	left := MaxSpawnSize
	for read := 1; ; read++ {
		block, err := readBlock(lines, &left)
		if err != nil {
			return nil, err
		}
		if read > MaxCommands {
			left = min(left, -1)
		}
		if left >= 0 {
			blocks = append(blocks, block)
		}
		if total, _ := strconv.Atoi(block.fields["totspawns"]); read >= total && left < 0 {
			return nil, errSpawnTooLong
		} else if read >= total {
			return blocks, nil
		}
		if !lines.Scan() || lines.Text() != spawnStart {
			return nil, fmt.Errorf("cannot parse a spawn request: after %d blocks it has %q instead of %q", read,
				textutil.SingleLine(lines.Text(), 80), spawnStart)
		}
	}
}

// readBlock reads the block whose first line has been scanned. It subtracts the size of the block
// from left; if left becomes negative, it discards the content.
func readBlock(lines *bufio.Scanner, left *int) (message, error) {
	block := message{fields: make(map[string]string)}
	for lines.Scan() {
		line := lines.Text()
		if line == blockEnd {
			return block, nil
		}
		if *left -= len(line) + pairOverhead; *left < -maxSpawnExcess*MaxSpawnSize {
			return block, fmt.Errorf("cannot parse a spawn request: it has more than %d bytes", MaxSpawnSize)
		}
		key, value, _ := strings.Cut(line, "=")
		if *left >= 0 || key == "totspawns" {
			block.fields[key] = value
		}
	}
	return block, errors.New("cannot parse a spawn request: it ends within a block")
}

func newSpawnRequest(by ProcID, blocks []message) (SpawnRequest, error) {
	s := SpawnRequest{Requester: by, Preput: make(map[string]string)}
	for i, block := range blocks {
		command, err := newCommand(block.fields)
		if err != nil {
			return SpawnRequest{}, fmt.Errorf("cannot spawn command %d of %d: %v", i+1, len(blocks), err)
		}
		s.Commands = append(s.Commands, command)
		maps.Copy(s.Preput, numberedPairs(block.fields, "preput_key_", "preput_val_"))
	}
	return s, nil
}

func newCommand(fields map[string]string) (Command, error) {
	name := fields["execname"]
	ranks, err := strconv.Atoi(fields["nprocs"])
	if err != nil || ranks < 1 || name == "" {
		return Command{}, fmt.Errorf("execname=%q and nprocs=%q must be a command and a number above 0", name,
			fields["nprocs"])
	}
	info := numberedPairs(fields, "info_key_", "info_val_")
	c := Command{Argv: []string{name}, Ranks: ranks, Info: info, Dir: info["wdir"]}
	if c.Dir == "" {
		c.Dir = info["wd"]
	}
	for i := 1; ; i++ {
		arg, found := fields["arg"+strconv.Itoa(i)]
		if !found {
			return c, nil
		}
		c.Argv = append(c.Argv, arg)
	}
}

func numberedPairs(fields map[string]string, keys, values string) map[string]string {
	found := make(map[string]string)
	for i := 0; ; i++ {
		key, is := fields[keys+strconv.Itoa(i)]
		if !is {
			return found
		}
		found[key] = fields[values+strconv.Itoa(i)]
	}
}

func (v *rankConn) handleSpawn(ctx context.Context, r pmi1Request) string {
	s, err := newSpawnRequest(v.procID(), r.blocks)
	if r.refusal != nil {
		err = r.refusal
	}
	if err == nil {
		_, err = v.cfg.Peers.SpawnJob(ctx, s)
	}
	if err != nil {
		v.log.Debug("an MPI rank cannot spawn processes", zap.Error(err))
		return failureResponse("spawn_result", err.Error())
	}
	return successResponse("spawn_result", errorCodes(s)...)
}

// errorCodes returns the error codes of all processes, which are 0. It returns none if the line
// would be too long for MPICH 4.0; missing codes count as 0.
func errorCodes(s SpawnRequest) []string {
	total := 0
	for _, c := range s.Commands {
		total += c.Ranks
		if total > 400 {
			return nil
		}
	}
	return []string{"errcodes", strings.TrimSuffix(strings.Repeat("0,", total), ",")}
}
