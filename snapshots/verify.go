package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// ProblemKind says which promise a problem breaks.
type ProblemKind string

// The kinds of problem, one for each finding of a Report.
const (
	ProblemChain     ProblemKind = "chain"     // a manifest is missing, out of place, or does not follow
	ProblemSignature ProblemKind = "signature" // a manifest is not signed by the key
	ProblemBody      ProblemKind = "body"      // a body is missing or is not what was sealed
	ProblemLock      ProblemKind = "lock"      // an object is not locked as long as its manifest says, or hidden
	ProblemTail      ProblemKind = "tail"      // the chain ends before the recorded head, or in another
)

// Problem is one thing that verification found.
type Problem struct {
	Kind ProblemKind `json:"kind"`
	Seq  int64       `json:"seq"`
	What string      `json:"what"`
}

// Finding is the answer to one question about a chain.
type Finding string

// The findings.
const (
	FindingGood      Finding = "good"
	FindingBad       Finding = "bad"
	FindingUnchecked Finding = "unchecked" // could not be asked here, such as locks of a folder
)

// Head names the end of a chain: a sequence number and the hash of its
// manifest. Kept apart from the store it shows a cut tail.
type Head struct {
	Seq  int64 `json:"seq"`
	Hash Hash  `json:"hash"`
}

// Report says separately what holds of a chain.
type Report struct {
	Integration string    `json:"integration"`
	Chain       Finding   `json:"chain"`      // whole: every manifest there, each following the one before
	Signatures  Finding   `json:"signatures"` // every manifest signed by the key
	Bodies      Finding   `json:"bodies"`     // every body as it was sealed
	Locks       Finding   `json:"locks"`      // every object locked as its manifest says
	Tail        Finding   `json:"tail"`       // the recorded head is there
	Checked     int       `json:"checked"`    // manifests read
	Head        Head      `json:"head"`       // the last manifest found
	Problems    []Problem `json:"problems"`
}

// Good reports whether nothing was found wrong. What could not be checked is
// not wrong: look at the findings.
func (r Report) Good() bool { return len(r.Problems) == 0 }

// Lock is how the store protects one object.
type Lock struct {
	Mode    string
	Until   time.Time
	Covered bool // another version or a delete marker lies over it
}

// Reader reads the objects of a chain: from a bucket, or from a folder that
// they were copied to.
type Reader interface {
	// Keys lists the keys with a prefix, in any order.
	Keys(ctx context.Context, prefix string) ([]string, error)
	// Read is an object's bytes; fs.ErrNotExist when there is none.
	Read(ctx context.Context, key string) ([]byte, error)
}

// LockReader is a Reader that knows locks too.
type LockReader interface {
	Reader
	// Lock is how the store protects the object.
	Lock(ctx context.Context, key string) (Lock, error)
}

// VerifyOptions says what to verify.
type VerifyOptions struct {
	Integration string
	// Head is the end that the chain must have, from the database or noted
	// down elsewhere; nil leaves the tail unchecked.
	Head *Head
	// Now decides which locks are over; zero leaves locks unchecked.
	Now time.Time
	// Progress, where set, is called after each manifest.
	Progress func(done, total int)
}

// verification is one pass over a chain.
type verification struct {
	reader   Reader
	locks    LockReader // nil: unchecked
	verifier note.Verifier
	opts     VerifyOptions
	report   Report
	bodies   map[string]content // each body is read once
	prev     Hash
	linked   bool // prev is known
	atHead   Hash // of the manifest in the recorded head's place
}

// verifyChain reads every manifest and body. The error is that of the reader;
// what is wrong with the chain is in the report.
func verifyChain(ctx context.Context, r Reader, v note.Verifier, opts VerifyOptions) (Report, error) {
	p := &verification{
		reader: r, verifier: v, opts: opts, bodies: map[string]content{}, linked: true,
		report: Report{
			Integration: opts.Integration, Chain: FindingGood, Signatures: FindingGood, Bodies: FindingGood,
			Locks: FindingUnchecked, Tail: FindingUnchecked, Problems: []Problem{},
		},
	}
	if locks, ok := r.(LockReader); ok && !opts.Now.IsZero() {
		p.locks, p.report.Locks = locks, FindingGood
	}
	present, last, err := p.manifests(ctx)
	if err != nil {
		return p.report, err
	}
	for seq := int64(1); seq <= last; seq++ {
		if err := ctx.Err(); err != nil {
			return p.report, fmt.Errorf("verify: %w", err)
		}
		if !present[seq] {
			p.problem(ProblemChain, seq, "the manifest is missing")
			p.linked = false
		} else if err := p.manifest(ctx, seq); err != nil {
			return p.report, err
		}
		if opts.Progress != nil {
			opts.Progress(int(seq), int(last))
		}
	}
	p.tail(last)
	return p.report, nil
}

// manifests lists which sequence numbers there are, and the highest.
func (p *verification) manifests(ctx context.Context) (present map[int64]bool, last int64, err error) {
	keys, err := p.reader.Keys(ctx, manifestPrefix(p.opts.Integration))
	if err != nil {
		return nil, 0, fmt.Errorf("list manifests: %w", err)
	}
	present = make(map[int64]bool, len(keys))
	for _, key := range keys {
		if seq, ok := manifestSeq(p.opts.Integration, key); ok {
			present[seq] = true
			last = max(last, seq)
		}
	}
	return present, last, nil
}

func (p *verification) problem(kind ProblemKind, seq int64, what string) {
	p.report.Problems = append(p.report.Problems, Problem{kind, seq, what})
	finding := map[ProblemKind]*Finding{
		ProblemChain: &p.report.Chain, ProblemSignature: &p.report.Signatures, ProblemBody: &p.report.Bodies,
		ProblemLock: &p.report.Locks, ProblemTail: &p.report.Tail,
	}[kind]
	*finding = FindingBad
}

// manifest checks one manifest, and the body and locks that it names. What an
// unsigned manifest says is not believed.
func (p *verification) manifest(ctx context.Context, seq int64) error {
	key := manifestKey(p.opts.Integration, seq)
	raw, err := p.reader.Read(ctx, key)
	if errors.Is(err, fs.ErrNotExist) {
		p.problem(ProblemChain, seq, "the manifest is missing")
		p.linked = false
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}
	prev, linked := p.prev, p.linked
	p.prev, p.linked = hashOf(raw), true
	p.report.Checked++
	p.report.Head = Head{Seq: seq, Hash: p.prev}
	if p.opts.Head != nil && seq == p.opts.Head.Seq {
		p.atHead = p.prev
	}

	m, err := openManifest(raw, p.verifier)
	var unsigned *signatureError
	switch {
	case errors.As(err, &unsigned):
		p.problem(ProblemSignature, seq, "the manifest is "+err.Error())
		return nil
	case err != nil:
		p.problem(ProblemChain, seq, err.Error())
		return nil
	case m.Integration != p.opts.Integration || m.Seq != seq:
		p.problem(ProblemChain, seq, fmt.Sprintf("its place holds the manifest of %s %d", m.Integration, m.Seq))
	case linked && m.Prev != prev:
		p.problem(ProblemChain, seq, "it does not follow the manifest before it")
	}
	if err := p.body(ctx, seq, m); err != nil {
		return err
	}
	return p.lock(ctx, seq, key, m.Body.Key, m.RetainUntil)
}

func (p *verification) body(ctx context.Context, seq int64, m Manifest) error {
	c, known := p.bodies[m.Body.Key]
	if !known {
		stored, err := p.reader.Read(ctx, m.Body.Key)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			c = content{err: errors.New("the body is missing")}
		case err != nil:
			return fmt.Errorf("read %s: %w", m.Body.Key, err)
		default:
			c = readContent(stored)
		}
		p.bodies[m.Body.Key] = c
	}
	if what := checkContent(c, m); what != "" {
		p.problem(ProblemBody, seq, what)
	}
	return nil
}

// lock checks the locks of a manifest and its body, for as long as they have
// to last.
func (p *verification) lock(ctx context.Context, seq int64, manifest, body string, need time.Time) error {
	if p.locks == nil {
		return nil
	}
	for _, key := range []string{manifest, body} {
		l, err := p.locks.Lock(ctx, key)
		if errors.Is(err, fs.ErrNotExist) {
			continue // reported as missing
		}
		if err != nil {
			return fmt.Errorf("read the lock of %s: %w", key, err)
		}
		if need.After(p.opts.Now) && !locked(l.Mode, l.Until, need) {
			p.problem(ProblemLock, seq, fmt.Sprintf("%s is not locked until %s", key, need.Format(time.RFC3339)))
		}
		if l.Covered {
			p.problem(ProblemLock, seq, key+" is hidden under a later version or delete marker; the sealed one is below it")
		}
	}
	return nil
}

// tail compares the end of the chain with the recorded head. A store that is
// ahead of it by a snapshot that is being recorded is no problem.
func (p *verification) tail(last int64) {
	want := p.opts.Head
	if want == nil {
		return
	}
	p.report.Tail = FindingGood
	if last < want.Seq {
		for seq := last + 1; seq <= want.Seq; seq++ {
			p.problem(ProblemTail, seq, "the end of the chain is missing")
		}
		return
	}
	if p.atHead != want.Hash {
		p.problem(ProblemTail, want.Seq, "the manifest is not the recorded head")
	}
}

// content is what a stored body turned out to be.
type content struct {
	storedHash, contentHash       Hash
	storedSize, contentSize, rows int64
	err                           error
}

// readContent reads a stored body without keeping it.
func readContent(stored []byte) content {
	c := content{storedHash: hashOf(stored), storedSize: int64(len(stored))}
	c.contentHash, c.contentSize, c.err = readLines(stored, func([]byte) error { c.rows++; return nil })
	return c
}

// checkContent compares a body with its manifest; "" when it is the one.
func checkContent(c content, m Manifest) string {
	switch {
	case c.storedSize == 0 && c.err != nil:
		return c.err.Error()
	case c.storedHash != m.Body.StoredHash || c.storedSize != m.Body.StoredSize:
		return "the body is not the one that was sealed"
	case c.err != nil:
		return "the body cannot be read: " + c.err.Error()
	case c.contentHash != m.Body.ContentHash || c.contentSize != m.Body.ContentSize || c.rows != m.Entities:
		return "the lines are not those that were sealed"
	}
	return ""
}
