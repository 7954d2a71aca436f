// Short names for the generated types.

import type { components } from './schema';

type Schemas = components['schemas'];
export type Run = Schemas['Run'];
export type RankState = Schemas['RankState'];
export type Stop = Schemas['Stop'];
export type Site = Schemas['Site'];
export type Hit = Schemas['Hit'];
export type Finding = Schemas['Finding'];
export type Question = Schemas['Question'];
export type Event = Schemas['Event'];
export type Node = Schemas['Node'];
export type Port = Schemas['Port'];
export type Source = Schemas['SourceLine'];
export type Excerpt = Schemas['Excerpt'];
export type Status = Schemas['Status'];
export type Tile = Schemas['Tile'];
export type TensorHistogram = Schemas['TensorHistogram'];
export type TensorAtHand = Schemas['TensorAtHand'];
export type Digests = Schemas['Digests'];
export type Histograms = Schemas['Histograms'];
export type Scalars = Schemas['Scalars'];
export type Watchpoint = Schemas['Watchpoint'];
export type NewWatchpoint = Schemas['NewWatchpoint'];
export type ChangedWatchpoint = Schemas['ChangedWatchpoint'];
export type Recheck = Schemas['Recheck'];
export type Rechecked = Schemas['Rechecked'];
export type Match = Schemas['Match'];
export type Condition = Schemas['Condition'];
export type Conditions = Schemas['Conditions'];
export type Breakpoint = Schemas['Breakpoint'];
export type Control = Schemas['Control'];
export type Output = Schemas['Output'];
export type Completion = Schemas['Completion'];
export type Comparison = Schemas['Comparison'];
export type LiveMessage = Schemas['LiveMessage'];
export type { JsonNumber } from '../lib/format';
