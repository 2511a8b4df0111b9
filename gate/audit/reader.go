package audit

import "context"

// Reader reads the record from one place; the functions of this package with
// the Querier filled in.
type Reader struct{ Q Querier }

// List is the function List.
func (r Reader) List(ctx context.Context, f Filter) ([]Record, error) { return List(ctx, r.Q, f) }

// Each is the function Each.
func (r Reader) Each(ctx context.Context, f Filter, do func(Record) error) error {
	return Each(ctx, r.Q, f, do)
}

// Head is the function CurrentHead.
func (r Reader) Head(ctx context.Context) (Head, error) { return CurrentHead(ctx, r.Q) }

// Verify reads the whole chain from its start; see the function Verify.
func (r Reader) Verify(ctx context.Context) (Head, error) { return Verify(ctx, r.Q, Head{}) }
