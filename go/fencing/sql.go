package fencing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// A Dialect is a family of databases that understand the same statements.
type Dialect int

const (
	PostgreSQL Dialect = iota + 1 // and compatible databases
	SQLite                        // 3.24 or later
	MySQL                         // and MariaDB; only on that one are the statements tested
)

var errNoTransaction = errors.New("fencing: AcceptSQL needs the *sql.Tx that makes the change: a *sql.DB would end the " +
	"check before it")

// Querier is what [AcceptSQL] needs from a *[sql.Tx]; a *[sql.Conn] with its own transaction also works.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// CreateSQL creates the table of fences, unless it exists.
func CreateSQL(ctx context.Context, db Querier, dialect Dialect) error {
	statement := SQLTable
	switch dialect {
	case PostgreSQL, SQLite:
	case MySQL:
		statement = MySQLTable
	default:
		return badDialect(dialect)
	}
	_, err := db.ExecContext(ctx, statement)
	return err
}

// AcceptSQL records a token in the table of fences, or returns [ErrStale]: then roll the transaction back. Call it
// first in the transaction that changes what name stands for, so that check and change happen together or not at
// all. A *[sql.DB] is refused, because it has no transaction. The table and the statements are the same as in the C and
// Python packages.
func AcceptSQL(ctx context.Context, tx Querier, dialect Dialect, name string, token int64, owner string) error {
	if token <= 0 {
		return ErrNoToken
	}
	if _, isPool := tx.(interface{ SetMaxOpenConns(int) }); isPool { // a *sql.DB, also as a part of another type
		return errNoTransaction
	}
	switch dialect {
	case PostgreSQL, SQLite:
		result, err := tx.ExecContext(ctx, SQLAccept, name, token, owner)
		if err != nil {
			return err
		}
		if rows, err := result.RowsAffected(); err != nil || rows == 1 {
			return err
		}
		return ErrStale
	case MySQL:
		if _, err := tx.ExecContext(ctx, MySQLNote, name, token, owner); err != nil {
			return err
		}
		var noted int64
		err := tx.QueryRowContext(ctx, MySQLVerify, name, token, owner).Scan(&noted)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrStale
		}
		return err
	}
	return badDialect(dialect)
}

func badDialect(dialect Dialect) error {
	return fmt.Errorf("fencing: there is no dialect %d; use PostgreSQL, SQLite or MySQL", dialect)
}
